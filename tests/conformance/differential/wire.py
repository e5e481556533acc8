"""ZooKeeper's records as bytes and back, written for the checker alone.

Nothing of `quorum.wire` is used: a checker may not lean on what it checks. Requests are plain tuples of
arguments; replies become nested tuples in which what differs between two systems by nature is marked by its
type (`Zxid`, `Owner`, `Stamp`). What cannot be decoded stays as bytes and is compared as such.
Source: zookeeper.jute, MultiOperationRecord, MultiResponse of ZooKeeper 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct, error, pack
from typing import Any, Final, NamedTuple

XID_EVENT: Final = -1
XID_PING: Final = -2
XID_AUTH: Final = -4
XID_SET_WATCHES: Final = -8

_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_REPLY: Final = Struct(">iqi")
_STAT: Final = Struct(">qqqqiiiqiiq")
_MULTI: Final = Struct(">i?i")
_MULTI_END: Final = _MULTI.pack(-1, True, -1)


class Op(IntEnum):
    """ZooDefs.OpCode, and operations that ZooKeeper does not know."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    UNKNOWN = 77
    UNKNOWN_NEGATIVE = -77


class Zxid(int):
    """A transaction's number: equal between two systems only by its place."""


class Owner(int):
    """An ephemeralOwner: a session's id, or a mark of a container or TTL node."""


class Stamp(int):
    """Milliseconds since 1970."""


#: (perms, scheme, id)
AclEntry = tuple[int, str, str]


class Request(NamedTuple):
    """An operation and its arguments, in the order of its record."""

    op: int
    args: tuple[Any, ...] = ()
    #: bytes that take the place of the encoded arguments
    raw: bytes | None = None


class Stat(NamedTuple):
    """A node's Stat."""

    czxid: Zxid
    mzxid: Zxid
    ctime: Stamp
    mtime: Stamp
    version: int
    cversion: int
    aversion: int
    owner: Owner
    size: int
    children: int
    pzxid: Zxid


class Reply(NamedTuple):
    """Header and decoded body of a reply."""

    xid: int
    zxid: Zxid
    err: int
    body: Any


class Event(NamedTuple):
    """A watch event."""

    zxid: Zxid
    err: int
    type: int
    state: int
    path: str


class Connected(NamedTuple):
    """A ConnectResponse."""

    protocol: int
    timeout_ms: int
    session_id: int
    password: bytes
    #: what stands behind the password; b"" from a server that knows no read-only mode
    rest: bytes


def text(value: str | None) -> bytes:
    """Encode a ustring; None is null."""
    return blob(None if value is None else value.encode("utf-8", "surrogatepass"))


def blob(value: bytes | None) -> bytes:
    """Encode a buffer; None is null."""
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


def texts(values: Sequence[str] | None) -> bytes:
    """Encode a vector of ustrings."""
    if values is None:
        return _INT.pack(-1)
    return _INT.pack(len(values)) + b"".join(map(text, values))


def acls(entries: Sequence[AclEntry] | None) -> bytes:
    """Encode a vector of ACL entries."""
    if entries is None:
        return _INT.pack(-1)
    body = [_INT.pack(perms) + text(scheme) + text(ident) for perms, scheme, ident in entries]
    return _INT.pack(len(entries)) + b"".join(body)


#: {operation: a letter per argument}: s string, b buffer, B boolean, i int, q long, a access list, S strings,
#: M multi
SHAPES: Final = {
    Op.CREATE: "sbai",
    Op.CREATE2: "sbai",
    Op.CREATE_CONTAINER: "sbai",
    Op.CREATE_TTL: "sbaiq",
    Op.DELETE: "si",
    Op.DELETE_CONTAINER: "s",
    Op.EXISTS: "sB",
    Op.GET_DATA: "sB",
    Op.GET_CHILDREN: "sB",
    Op.GET_CHILDREN2: "sB",
    Op.SET_DATA: "sbi",
    Op.GET_ACL: "s",
    Op.SET_ACL: "sai",
    Op.SYNC: "s",
    Op.CHECK: "si",
    Op.CHECK_WATCHES: "si",
    Op.REMOVE_WATCHES: "si",
    Op.MULTI: "M",
    Op.MULTI_READ: "M",
    Op.AUTH: "isb",
    Op.SET_WATCHES: "qSSS",
    Op.SET_WATCHES2: "qSSSSS",
    Op.GET_EPHEMERALS: "s",
    Op.GET_ALL_CHILDREN_NUMBER: "s",
    Op.ADD_WATCH: "si",
    Op.RECONFIG: "sssq",
}


def multi(requests: Sequence[Request]) -> bytes:
    """Encode the operations of a multi or multiRead."""
    parts = [_MULTI.pack(request.op, False, -1) + body(request) for request in requests]
    return b"".join(parts) + _MULTI_END


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "s": text,
    "b": blob,
    "B": lambda value: b"\1" if value else b"\0",
    "i": _INT.pack,
    "q": _LONG.pack,
    "a": acls,
    "S": texts,
    "M": multi,
}


def body(request: Request) -> bytes:
    """Encode what stands behind the request header."""
    if request.raw is not None:
        return request.raw
    shape = SHAPES.get(Op(request.op), "")
    return b"".join(_ENCODERS[kind](value) for kind, value in zip(shape, request.args, strict=True))


def frame(payload: bytes) -> bytes:
    """Put the length before a payload."""
    return _INT.pack(len(payload)) + payload


def request_frame(xid: int, request: Request) -> bytes:
    """Encode a request with its header and length."""
    return frame(pack(">ii", xid, request.op) + body(request))


def connect_frame(
    last_zxid: int, timeout_ms: int, session_id: int, password: bytes, read_only: bool | None = False
) -> bytes:
    """Encode a ConnectRequest; with read_only None it ends behind the password."""
    payload = pack(">iqiq", 0, last_zxid, timeout_ms, session_id) + blob(password)
    return frame(payload if read_only is None else payload + (b"\1" if read_only else b"\0"))


class Decoder:
    """Reads records one behind the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def int32(self) -> int:
        """Read an int."""
        value = int(_INT.unpack_from(self.data, self.at)[0])
        self.at += 4
        return value

    def blob(self) -> bytes | None:
        """Read a buffer."""
        length = self.int32()
        if length < 0:
            return None
        value = self.data[self.at : self.at + length]
        if len(value) != length:
            raise error("the buffer is cut off")
        self.at += length
        return value

    def text(self) -> str | None:
        """Read a ustring."""
        raw = self.blob()
        return None if raw is None else raw.decode("utf-8", "surrogateescape")

    def texts(self) -> tuple[str | None, ...]:
        """Read a vector of ustrings."""
        return tuple(self.text() for _ in range(self.int32()))

    def stat(self) -> Stat:
        """Read a Stat."""
        values = _STAT.unpack_from(self.data, self.at)
        self.at += _STAT.size
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, size, children, pzxid = values
        times = (Stamp(ctime), Stamp(mtime))
        counters = (version, cversion, aversion)
        return Stat(Zxid(czxid), Zxid(mzxid), *times, *counters, Owner(owner), size, children, Zxid(pzxid))

    def acls(self) -> tuple[tuple[int, str | None, str | None], ...]:
        """Read a vector of ACL entries."""
        return tuple((self.int32(), self.text(), self.text()) for _ in range(self.int32()))

    def pairs(self) -> tuple[tuple[str | None, str | None], ...]:
        """Read whoAmI's vector of scheme and user."""
        return tuple((self.text(), self.text()) for _ in range(self.int32()))

    def results(self) -> tuple[Any, ...]:
        """Read the results of a multi: (type, err, body) each, and the mark at the end."""
        items: list[Any] = []
        while True:
            kind, done, err = _MULTI.unpack_from(self.data, self.at)
            self.at += _MULTI.size
            if done:
                return (*items, ("end", kind, err))
            items.append((kind, err, self.result(kind)))

    def result(self, op: int) -> Any:
        """Read the body of a reply to an operation, or of a result inside a multi."""
        match op:
            case -1:
                return self.int32()
            case Op.CREATE | Op.SYNC:
                return self.text()
            case Op.CREATE2 | Op.CREATE_CONTAINER | Op.CREATE_TTL:
                return (self.text(), self.stat())
            case Op.EXISTS | Op.SET_DATA | Op.SET_ACL:
                return self.stat()
            case Op.GET_DATA:
                return (self.blob(), self.stat())
            case Op.GET_CHILDREN:
                return self.texts()
            case Op.GET_CHILDREN2:
                return (self.texts(), self.stat())
            case Op.GET_ACL:
                return (self.acls(), self.stat())
            case Op.MULTI | Op.MULTI_READ:
                return self.results()
            case Op.GET_EPHEMERALS:
                return self.texts()
            case Op.GET_ALL_CHILDREN_NUMBER | Op.ADD_WATCH:
                return self.int32()
            case Op.WHO_AM_I:
                return self.pairs()
            case _:
                return None


def decode_reply(data: bytes, op: int) -> Reply:
    """Decode the reply to an operation; a body that does not fit stays raw."""
    xid, zxid, err = _REPLY.unpack_from(data)
    decoder = Decoder(data, _REPLY.size)
    content: Any = None
    if decoder.at < len(data):
        try:
            content = decoder.result(op)
        except (error, IndexError):
            content, decoder.at = None, _REPLY.size
        if decoder.at < len(data):
            content = (content, "behind it", data[decoder.at :].hex())
    return Reply(xid, Zxid(zxid), err, content)


def decode_event(data: bytes) -> Event:
    """Decode a notification."""
    _, zxid, err = _REPLY.unpack_from(data)
    decoder = Decoder(data, _REPLY.size)
    kind, state = decoder.int32(), decoder.int32()
    return Event(Zxid(zxid), err, kind, state, decoder.text() or "")


def decode_connected(data: bytes) -> Connected:
    """Decode a ConnectResponse."""
    protocol, timeout_ms, session_id = Struct(">iiq").unpack_from(data)
    decoder = Decoder(data, 16)
    password = decoder.blob() or b""
    return Connected(protocol, timeout_ms, session_id, password, data[decoder.at :])


def xid_of(data: bytes) -> int:
    """Return the xid of a received frame."""
    return int(_INT.unpack_from(data)[0])
