"""One record of the replicated log.

Decides the kinds of entries and their shape. Does not know what the payloads of commands mean: the core reads
the payload of configuration kinds only (`configuration.py`). An entry is hard state from the moment a persist
that holds it is durable; index and term together name it for ever (Raft §5.3, log matching).
"""

from enum import IntEnum
from typing import Final, NamedTuple


class EntryKind(IntEnum):
    """What an entry's payload is. The numbers are written to journals: never reuse one.

    A new kind needs a new format of the journal and of the peers' frames.
    """

    NOOP = 0  #: first entry of a leader's term, or proof that it still leads; empty payload
    BATCH = 1  #: client commands of one origin node
    FOUND = 2  #: entry 1: cluster id, session key, configuration (JSON)
    REGISTER = 4  #: origin incarnation of a node
    CONTROL = 5  #: the leader's own proposals
    MEMBERS = 6  #: configuration after a membership change (JSON)


#: Entries of these kinds carry a whole configuration, which counts from its append.
CONFIGURATION_KINDS: Final = (EntryKind.FOUND, EntryKind.MEMBERS)

#: What an entry costs in memory and on the wire besides its payload; keeps empty entries from being free of
#: any bound.
ENTRY_OVERHEAD_BYTES: Final = 64


class Entry(NamedTuple):
    """One log entry; equal (index, term) means equal entry on every node."""

    #: position in the log, the first is 1 (the field hides tuple.index, which nobody calls on an entry)
    index: int  # type: ignore[assignment]
    term: int  #: term of the leader that appended it
    kind: EntryKind
    stamp_ms: int  #: wall-clock milliseconds, never falling along the log
    payload: bytes


def size_bytes(entry: Entry) -> int:
    """Return what the entry counts against every byte limit of the core."""
    return len(entry.payload) + ENTRY_OVERHEAD_BYTES
