"""Entries of the log as they are handed out: msgpack lists, one behind the other. Pure.

    [log index, term, kind, stamp in milliseconds, payload]

The key of the session passwords, which the founding entry holds, never leaves a node: another key of the same
length takes its place (quorum/raft/snapshots/handing.py does the same for snapshots). Whether entries are
whole is for whoever stores them to check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Final

import msgpack

from quorum.raft.core.entry import Entry, EntryKind

#: of one entry; no setting allows as much
_ENTRY_BYTES_MAX: Final = 1 << 30
_KINDS: Final = {int(kind): kind for kind in EntryKind}


class HandedEntryError(ValueError):
    """Bytes that are no entries, or not the next ones."""


def pack_entries(entries: Iterable[Entry]) -> bytes:
    """Pack entries as they are."""
    return b"".join(
        msgpack.packb([index, term, int(kind), stamp_ms, payload], use_bin_type=True)
        for index, term, kind, stamp_ms, payload in entries
    )


def with_another_key(entries: Iterable[Entry], key: bytes, another: bytes) -> Iterator[Entry]:
    """Return entries with one session key in place of another.

    Args:
        entries: of the log.
        key: of the session passwords.
        another: of the same length.
    """
    assert len(key) == len(another)
    for entry in entries:
        if entry.kind is EntryKind.FOUND:
            payload = entry.payload.replace(key.hex().encode(), another.hex().encode())
            yield entry._replace(payload=payload)
        else:
            yield entry


def unpack_entries(file: IO[bytes], next_index: int) -> Iterator[Entry]:
    """Return the entries of a file, in order.

    Args:
        file: open; stays the caller's.
        next_index: log index that the first one has.

    Raises:
        HandedEntryError: the bytes are something else.
    """
    unpacker = msgpack.Unpacker(file, raw=False, max_buffer_size=_ENTRY_BYTES_MAX)
    offset = 0
    while True:
        try:
            values = unpacker.unpack()
        except msgpack.OutOfData:
            if unpacker.tell() != offset or file.read(1):
                raise HandedEntryError(f"entry {next_index} is cut") from None
            return
        except (ValueError, msgpack.UnpackException) as error:
            raise HandedEntryError(f"entry {next_index} is not msgpack: {error}") from error
        offset = unpacker.tell()
        match values:
            case [int(index), int(term), int(kind), int(stamp_ms), bytes(payload)] if index == next_index:
                if kind not in _KINDS:
                    raise HandedEntryError(
                        f"entry {index} is of kind {kind}, which this version does not know"
                    )
                yield Entry(index, term, _KINDS[kind], stamp_ms, payload)
            case _:
                raise HandedEntryError(f"what is there is not entry {next_index}")
        next_index += 1
