"""The feature level of a cluster: from which one on something new may be written or sent. Pure.

A level is a whole number that a build supports up to FEATURE_LEVEL. A cluster has one, too: replicated state,
which the leader raises once every member supports the next (quorum/node/levels.py), and which never falls.
What an older build could not read, an entry, a snapshot, a message, is written only where `allows` says so:
that is the one question, and Feature the one list of what may be asked. A cluster without an entry about its
level has BASE_LEVEL, as has every state of the first release.

To add something: give it the next number in Feature, ask `allows` where it is written or accepted from a
client, and let what reads it ask nothing. No state.

Source: docs/operate/upgrade.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from quorum.core.codes import INT32_MAX


class Feature(IntEnum):
    """What a cluster may use, each with the level from which on it may."""

    BASE = 1  #: all that the first release has


BASE_LEVEL: Final = int(Feature.BASE)
#: the highest level that this build supports
FEATURE_LEVEL: Final = int(max(Feature))


def allows(feature_level: int, feature: Feature) -> bool:
    """Tell whether a cluster of this level may use a feature: whether every member can read it."""
    return feature_level >= feature


def raised_level(feature_level: int, arguments: list[object]) -> int | None:
    """Return the level of a cluster after a proposal to raise it; None: the proposal is void.

    Args:
        feature_level: before.
        arguments: of the proposal: the level alone; another shape, type or no rise is void.
    """
    wanted = arguments[0] if len(arguments) == 1 else None
    return wanted if type(wanted) is int and feature_level < wanted <= INT32_MAX else None
