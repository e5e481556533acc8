"""Endpoints of znodes: read one, write one, and transactions of several operations.

Decides what a well-formed request is and how a client's errors become HTTP's. A plain read is of this node's
own state; a linearizable one, and every write, goes through the node's client port. Access lists hold here as
for a client that proved nothing. No state.

Source: docs/http.md; ZooKeeper 3.9 (codes).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import web

from quorum.admin.endpoint import BASE64, INTEGER, STAT, STRING, Schema, encoded, fields, list_of, nullable
from quorum.admin.fields import read_fields
from quorum.admin.gateway import Gateway
from quorum.admin.parameters import Parameter, read_query
from quorum.admin.past import AS_OF, past_node
from quorum.admin.state import STATE
from quorum.admin.view import BadInputError, answer_to, error_answer, json_answer, part
from quorum.client import (
    BadArgumentsError,
    BadVersionError,
    ClientError,
    CreateMode,
    InvalidArgumentError,
    MultiFailedError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RequestTooLargeError,
    Stat,
    Transaction,
)
from quorum.errors import OutcomeUnknownError, QuorateError, shown

GATEWAY: Final = web.AppKey[Gateway]("gateway")
INT32_MAX: Final = (1 << 31) - 1
CHILDREN_MAX: Final = 10_000
OPERATIONS_MAX: Final = 1000
#: of a body with data; base64 makes a third more of them
BODY_BYTES_MAX: Final = 6 * 1024 * 1024
_PATH: Final = Parameter("path", str, "absolute, as /brokers/ids", pattern="/|(?:/[^/]+)+")
_VERSION: Final = Parameter("version", int, "that the node must have; -1: any", -1, -INT32_MAX - 1, INT32_MAX)
READ: Final = (
    _PATH,
    Parameter("linearizable", bool, "whether all that was committed before counts", False),
    Parameter("children", bool, "whether the children's names are wanted", True),
    Parameter("limit", int, "children that are named, by name", 1000, 0, CHILDREN_MAX),
    Parameter("after", str, "children behind this name only", ""),
    AS_OF._replace(text="the transaction behind which it was so; -1: as it is now", default=-1, least=-1),
)
WRITE: Final = (
    _PATH,
    _VERSION,
    Parameter("create", bool, "whether to create the node where there is none", False),
)
DELETE: Final = (_PATH, _VERSION)
#: what is known of a Stat in the past
_PAST_STAT: Final = fields(
    czxid=INTEGER,
    mzxid=INTEGER,
    ctime_ms=INTEGER,
    mtime_ms=INTEGER,
    version=INTEGER,
    aversion=INTEGER,
    ephemeral_owner=INTEGER,
    data_length=INTEGER,
    children_count=INTEGER,
)
NODE: Final = fields(
    path=STRING, data=BASE64, stat={"anyOf": [STAT, _PAST_STAT]}, children=list_of(STRING), zxid=INTEGER
)
WRITTEN: Final = fields(path=STRING, stat=STAT)
DELETED: Final = fields(path=STRING)
PUT_BODY: Final[Schema] = {
    "type": "object",
    "properties": {"data": BASE64},
    "required": ["data"],
    "additionalProperties": False,
}
_MODES: Final = {mode.name.lower(): mode for mode in CreateMode}
TRANSACTION_BODY: Final[Schema] = {
    "type": "object",
    "properties": {
        "operations": {
            "type": "array",
            "minItems": 1,
            "maxItems": OPERATIONS_MAX,
            "items": {
                "type": "object",
                "properties": {
                    "op": {"enum": ["create", "set", "delete", "check"]},
                    "path": STRING,
                    "data": BASE64,
                    "version": {"type": "integer", "minimum": -INT32_MAX - 1, "maximum": INT32_MAX},
                    "mode": {"enum": sorted(_MODES)},
                },
                "required": ["op", "path"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["operations"],
    "additionalProperties": False,
}
TRANSACTION_ANSWER: Final = fields(
    results=list_of(fields(op=STRING, path=nullable("string"), stat={"oneOf": [STAT, {"type": "null"}]}))
)
_PUT_EXAMPLE: Final = 'send {"data": "aGVsbG8="}: base64, or null'
_TRANSACTION_EXAMPLE: Final = (
    'send {"operations": [{"op": "check", "path": "/a", "version": 3}, {"op": "set", "path": "/b", "data": '
    '"aGVsbG8="}]}'
)
#: which keys each operation takes, and which it needs
_KEYS: Final[Mapping[str, tuple[set[str], set[str]]]] = {
    "create": ({"op", "path", "data", "mode"}, {"data"}),
    "set": ({"op", "path", "data", "version"}, {"data"}),
    "delete": ({"op", "path", "version"}, set()),
    "check": ({"op", "path", "version"}, {"version"}),
}


async def get_znode(request: web.Request) -> web.Response:
    """Answer with data, Stat and children of a node."""
    query = read_query(request, READ)
    path, after, limit = str(query["path"]), str(query["after"]), int(query["limit"])
    state = part(request, STATE)
    if query["linearizable"]:
        try:
            async with part(request, GATEWAY).client() as client:
                await client.sync(path)
        except (ClientError, TimeoutError) as error:
            return client_answer(error, writes=False)
    as_of_zxid = int(query["as_of_zxid"])
    if as_of_zxid >= 0:
        past = await past_node(request, path, as_of_zxid, with_names=bool(query["children"]))
        if isinstance(past, web.Response):
            return past
        if past is None:
            return _absent(path, NoNodeError.code)
        return _node(path, *past, after, limit, as_of_zxid)
    found = state.znode(path)
    if isinstance(found, int):
        return _absent(path, found)
    data, stat, names = found
    return _node(path, data, stat._asdict(), names if query["children"] else (), after, limit, state.zxid)


def _node(
    path: str,
    data: bytes | None,
    stat: Mapping[str, int],
    names: Sequence[str],
    after: str,
    limit: int,
    zxid: int,
) -> web.Response:
    behind = sorted(name for name in names if name > after)
    answer = {"path": path, "data": encoded(data), "stat": stat, "children": behind[:limit]}
    return json_answer({**answer, "zxid": zxid})


def _absent(path: str, code: int) -> web.Response:
    if code == NoAuthError.code:
        return client_answer(NoAuthError(code, path), writes=False)
    return client_answer(NoNodeError(code, path), writes=False)


async def put_znode(request: web.Request) -> web.Response:
    """Set the data of a node, or create it."""
    query = read_query(request, WRITE)
    body = await read_fields(request, {"data"}, _PUT_EXAMPLE, with_query=True, bytes_max=BODY_BYTES_MAX)
    path, version, data = str(query["path"]), int(query["version"]), _data(body, _PUT_EXAMPLE)
    try:
        async with part(request, GATEWAY).client() as client:
            try:
                stat = await client.set(path, data, version)
            except NoNodeError:
                if not query["create"] or version != -1:
                    raise
                path, stat = await client.create2(path, data)
    except (ClientError, TimeoutError) as error:
        return client_answer(error)
    return json_answer({"path": path, "stat": stat._asdict()})


async def delete_znode(request: web.Request) -> web.Response:
    """Delete a node that has no children."""
    query = read_query(request, DELETE)
    path = str(query["path"])
    try:
        async with part(request, GATEWAY).client() as client:
            await client.delete(path, int(query["version"]))
    except (ClientError, TimeoutError) as error:
        return client_answer(error)
    return json_answer({"path": path})


async def post_transaction(request: web.Request) -> web.Response:
    """Carry out all of some operations, or none."""
    body = await read_fields(request, {"operations"}, _TRANSACTION_EXAMPLE, bytes_max=BODY_BYTES_MAX)
    operations = body.get("operations")
    if not isinstance(operations, list) or not 1 <= len(operations) <= OPERATIONS_MAX:
        problem = f"operations = {shown(operations)} is not a list of 1 to {OPERATIONS_MAX} operations"
        raise BadInputError(problem, _TRANSACTION_EXAMPLE, "operations")
    transaction = Transaction()
    try:
        for operation in operations:
            _add(transaction, operation)
        async with part(request, GATEWAY).client() as client:
            results = await client.multi(transaction)
    except (ClientError, TimeoutError) as error:
        return client_answer(error)
    rows = [
        {
            "op": operation["op"],
            "path": result.path,
            "stat": None if result.stat is None else _plain(result.stat),
        }
        for operation, result in zip(operations, results, strict=True)
    ]
    return json_answer({"results": rows})


def _plain(stat: Stat) -> dict[str, int]:
    return stat._asdict()


def _add(transaction: Transaction, operation: object) -> None:
    """Add an operation as JSON has it."""
    op = operation.get("op") if isinstance(operation, dict) else None
    if not isinstance(operation, dict) or not isinstance(op, str) or op not in _KEYS:
        problem = f"operation {shown(operation)} is no object whose op is one of {', '.join(_KEYS)}"
        raise BadInputError(problem, _TRANSACTION_EXAMPLE, "operations")
    known, needed = _KEYS[op]
    if not {"path", *needed} <= operation.keys() <= known:
        problem = f"operation {shown(operation)} must have {', '.join(sorted({'path', *needed}))}"
        remedy = f"give a {op} nothing but {', '.join(sorted(known))}"
        raise BadInputError(problem, remedy, "operations")
    path, version, mode = operation["path"], operation.get("version", -1), operation.get("mode", "persistent")
    if not isinstance(path, str) or not path.startswith("/"):
        raise BadInputError(f"path = {shown(path)} is no path", _TRANSACTION_EXAMPLE, "path")
    if type(version) is not int or not -INT32_MAX - 1 <= version <= INT32_MAX:
        problem = f"version = {shown(version)} is no whole number of 32 bits"
        raise BadInputError(problem, _TRANSACTION_EXAMPLE, "version")
    if mode not in _MODES if isinstance(mode, str) else True:
        raise BadInputError(f"mode = {shown(mode)} is none", f"send one of {', '.join(_MODES)}", "mode")
    if op == "create":
        transaction.create(path, _data(operation, _TRANSACTION_EXAMPLE), _MODES[mode])
    elif op == "set":
        transaction.set(path, _data(operation, _TRANSACTION_EXAMPLE), version)
    elif op == "delete":
        transaction.delete(path, version)
    else:
        transaction.check(path, version)


def _data(given: Mapping[str, Any], example: str) -> bytes | None:
    """Read data that JSON holds."""
    if "data" not in given:
        raise BadInputError("the body lacks the field data", example, "data")
    text = given["data"]
    if text is None:
        return None
    try:
        if not isinstance(text, str):
            raise ValueError("no text")
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadInputError(f"data = {shown(text)} is not base64", example, "data") from error


class _Told(NamedTuple):
    """How an error of the client is told where it says no remedy itself."""

    kind: type[QuorateError]
    status: int
    field: str = "path"
    remedy: str = ""


_TOLD: Final[Sequence[_Told]] = (
    _Told(NoNodeError, 404, remedy="list the children of a node above it; PUT makes it with create=true"),
    _Told(NoAuthError, 403, remedy="change it as a client that can prove who it is"),
    _Told(BadVersionError, 409, "version", "read the node again and send the version of its stat"),
    _Told(NodeExistsError, 409, remedy="read it, or set its data"),
    _Told(NotEmptyError, 409, remedy="delete its children first"),
    _Told(NoChildrenForEphemeralsError, 409, remedy="choose a parent that is not ephemeral"),
    _Told(BadArgumentsError, 400),
    _Told(InvalidArgumentError, 400),
    _Told(RequestTooLargeError, 413, "data"),
)


def client_answer(error: ClientError | TimeoutError, *, writes: bool = True) -> web.Response:
    """Answer with an error of the client."""
    if isinstance(error, TimeoutError):
        if not writes:
            return error_answer(503, "the read was not answered in time", "see /readyz", retriable=True)
        problem = "the write was not answered in time: its outcome is unknown"
        return answer_to(OutcomeUnknownError(problem, "read the state before repeating it, and see /readyz"))
    cause, operations = (error.cause, "operations") if isinstance(error, MultiFailedError) else (error, "")
    for told in _TOLD:
        if isinstance(cause, told.kind):
            more = {"definite": error.definite, "retriable": error.retriable}
            remedy, field = error.remedy or told.remedy, operations or told.field
            return error_answer(told.status, error.message, remedy, field=field, **more)
    return answer_to(error)
