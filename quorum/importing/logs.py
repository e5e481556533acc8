"""A transaction log of a ZooKeeper server: records with checksums, padded with zeros.

A record that the end of the file, or the padding, cuts short was never acknowledged: the log ends before it.
Anything else that does not fit is damage.
Source: ZooKeeper 3.9 FileTxnLog, TxnHeader of zookeeper.jute.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from quorum.importing.errors import SourceFileError

_MAGIC: Final = 0x5A4B4C47
_VERSION: Final = 2
#: magic, version, dbid
_FILE_HEADER: Final = Struct(">iiq")
#: checksum, length
_RECORD_HEAD: Final = Struct(">qi")
#: clientId, cxid, zxid, time, type
_HEADER: Final = Struct(">qiqqi")
_END: Final = 0x42
#: of a record; jute.maxbuffer is 1 MB unless it was raised
RECORD_BYTES_MAX: Final = 256 * 1024 * 1024
_REMEDY: Final = "take the files of another server of the ensemble"


class LoggedTransaction(NamedTuple):
    """A transaction; what it did is in its body."""

    session_id: int
    zxid: int
    time_ms: int
    type: int
    body: bytes


def read_log(path: Path) -> Iterator[LoggedTransaction]:
    """Yield the transactions of a log.

    Raises:
        SourceFileError: it is damaged, or none.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceFileError(f"{path} cannot be read: {error.strerror}", _REMEDY) from error
    if len(content) < _FILE_HEADER.size or not any(content[: _FILE_HEADER.size]):
        # Created, and not written any more.
        return
    if _FILE_HEADER.unpack_from(content)[:2] != (_MAGIC, _VERSION):
        raise SourceFileError(f"{path} is no transaction log of a ZooKeeper server", _REMEDY)
    position = _FILE_HEADER.size
    while position + _RECORD_HEAD.size <= len(content):
        checksum, length = _RECORD_HEAD.unpack_from(content, position)
        if not length:
            _refuse_if_any(path, content, position)
            return
        begin = position + _RECORD_HEAD.size
        end = begin + length
        if not 0 < length <= RECORD_BYTES_MAX:
            raise _damaged(path, position, f"a record of {length} bytes")
        if end >= len(content):
            return
        if content[end] != _END:
            _refuse_if_any(path, content, end)
            return
        record = content[begin:end]
        if zlib.adler32(record) != checksum:
            raise _damaged(path, position, "the checksum of the record does not fit")
        if length < _HEADER.size:
            raise _damaged(path, position, "the record has no header")
        session_id, _, zxid, time_ms, kind = _HEADER.unpack_from(record)
        yield LoggedTransaction(session_id, zxid, time_ms, kind, record[_HEADER.size :])
        position = end + 1


def _refuse_if_any(path: Path, content: bytes, position: int) -> None:
    """Refuse a log that goes on where nothing but padding may come."""
    if content[position:].strip(b"\0"):
        raise _damaged(path, position, "a record was expected")


def _damaged(path: Path, position: int, problem: str) -> SourceFileError:
    return SourceFileError(f"{path} is damaged at byte {position}: {problem}", _REMEDY)
