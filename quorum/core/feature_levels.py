"""The feature level of a cluster: from which one on something new may be written or sent. Pure.

A level is a whole number that a build supports up to FEATURE_LEVEL. A cluster has one, too: replicated state,
which the leader raises once every member supports the next (quorum/node/levels.py), and which never falls.
A cluster without an entry about its level has BASE_LEVEL, as has every state of the first release: it has all
that this build writes.

To add what an older build could not read, an entry, a snapshot, a message: raise FEATURE_LEVEL, give the new
number a name here, and write it, or accept it from a client, only where the cluster's level is no lower. What
reads it asks nothing. No state.

Source: docs/operate/upgrade.md.
"""

from __future__ import annotations

from typing import Final

from quorum.core.codes import INT32_MAX

#: all that the first release has
BASE_LEVEL: Final = 1
#: the highest level that this build supports
FEATURE_LEVEL: Final = BASE_LEVEL


def raised_level(feature_level: int, arguments: list[object]) -> int | None:
    """Return the level of a cluster after a proposal to raise it; None: the proposal is void.

    Args:
        feature_level: before.
        arguments: of the proposal: the level alone; another shape, type or no rise is void.
    """
    wanted = arguments[0] if len(arguments) == 1 else None
    return wanted if type(wanted) is int and feature_level < wanted <= INT32_MAX else None
