"""The formats of the payloads that a state machine applies, and which of them this version knows. Pure.

A batch, the leader's proposals and a registration are msgpack lists that begin with their format, a whole
number from 1. A node applies every format up to its own and stops at a newer one: what it does not know it
would apply otherwise than the others, and its state would part from theirs. So a release raises a format
whenever a command or a proposal is new, or does something else than before, even if the list has the same
shape; and it writes the format before as long as a member may know no other, which the feature level of the
cluster says (quorum/core/feature_levels.py). The other kinds have no number: a no-op has no payload, and a
configuration is JSON, whose unknown fields are refused. A new kind of entry needs a new format of the journal
and of the peers' frames.

The modules that pack and apply a payload decide what the fields after its format mean. No state.

Source: ARCHITECTURE.md, "Life of a write".
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from quorum.errors import Fault, QuorateError, shown
from quorum.raft.core.entry import EntryKind

#: [format, origin, incarnation, number, runs] as it was before quotas were kept
UNCOUNTED_BATCH_FORMAT: Final = 1
#: the same with an operator's request in place of the runs
REQUEST_FORMAT: Final = 2
#: runs again; what is used of quotas is written
BATCH_FORMAT: Final = 3
#: the same from a node that enforces hard limits
ENFORCING_BATCH_FORMAT: Final = 4
#: steps of an import in place of the runs
IMPORT_FORMAT: Final = 5
#: 1: [format, proposals] to expire sessions; 2: also to reap containers and nodes with a TTL; 3: also to
#: answer operators' requests; 4: what is used of quotas is written
CONTROL_FORMAT: Final = 4
#: the same with a proposal to raise the feature level; written for that alone
LEVEL_FORMAT: Final = 5
#: 1: [format, node id, origin incarnation]
REGISTER_FORMAT: Final = 1

#: How batches of clients begin: a list of five, whose first value is the format.
BATCH_HEADS: Final = frozenset((bytes((0x95, BATCH_FORMAT)), bytes((0x95, ENFORCING_BATCH_FORMAT))))

_KNOWN: Final = {
    EntryKind.BATCH: IMPORT_FORMAT,
    EntryKind.CONTROL: LEVEL_FORMAT,
    EntryKind.REGISTER: REGISTER_FORMAT,
}
UPDATE_REMEDY: Final = (
    "update this node to the version that the other members run and start it again; its data directory stays "
    "as it is"
)
_REPORT_REMEDY: Final = "keep the data directory and report this with the log"


class PayloadFormatError(QuorateError):
    """A payload whose format this version does not know, or that has none; nothing of it was applied."""

    fault = Fault.OPERATOR


def fields_of(kind: EntryKind, payload: bytes) -> list[Any]:
    """Unpack a payload whose format this version knows.

    Args:
        kind: BATCH, CONTROL or REGISTER.
        payload: of an entry of that kind.

    Returns:
        The fields, the format first.
    """
    values: object = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    known = _KNOWN[kind]
    what = kind.name.lower()
    if not isinstance(values, list) or not values:
        raise PayloadFormatError(
            f"the payload of a {what} entry is {shown(values)}, not a list that begins with its format",
            _REPORT_REMEDY,
        )
    found = values[0]
    if type(found) is not int or found < 1:
        raise PayloadFormatError(
            f"the format of a {what} entry is {shown(found)}, not a whole number from 1", _REPORT_REMEDY
        )
    if found > known:
        raise PayloadFormatError(
            f"format {found} of a {what} entry is newer than this version knows (up to {known})",
            UPDATE_REMEDY,
        )
    return values
