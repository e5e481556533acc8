"""A snapshot's file as it is handed out: the same state, with another key of the session passwords.

A holder of the key can resume any session of the cluster, so it never leaves a node. Another key of the
same length takes its place wherever the file has it: in the configuration of the founding, and in the
head of the state. A node that starts from such a file works; it ends the sessions whose clients come again.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorum.platform.runtime import File
from quorum.raft.snapshots.format import SnapshotEncoder, SnapshotReader


def with_another_key(file: File, key: bytes, another: bytes) -> Iterator[bytes]:
    """Return the bytes of a snapshot's file, with one key in place of another; may run in any thread.

    Args:
        file: open; stays the caller's.
        key: of the session passwords.
        another: of the same length.
    """
    assert len(key) == len(another)
    hexadecimal = (key.hex().encode(), another.hex().encode())
    reader, encoder = SnapshotReader(file), SnapshotEncoder()
    header = reader.header
    payload = header.configuration_payload.replace(*hexadecimal)
    yield from encoder.begin(header._replace(configuration_payload=payload))
    # The first chunk is the state's head; the others hold znodes.
    key_is_ahead = True
    for body in reader.bodies():
        handed = body.replace(key, another).replace(*hexadecimal) if key_is_ahead else body
        key_is_ahead = False
        yield from encoder.chunk(handed)
    yield from encoder.end()
