"""Endpoints of znodes: read one, write one, and transactions of several operations.

Decides what a well-formed request is and how a client's errors become HTTP's. A plain read is of this node's
own state; a linearizable one, and every write, goes through the node's client port. Access lists hold here: a
caller is whom its token or certificate names, else nobody. No state.

Source: docs/reference/http.md; ZooKeeper 3.9 (codes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.access import authorize_writes, identity_of
from quorum.admin.endpoint import Answer, Base64, Endpoints, StatFields, answer, encoded, schema_of
from quorum.admin.gateway import Gateway
from quorum.admin.past import past_node
from quorum.admin.reading import Says
from quorum.admin.state import MACHINE, read_znode
from quorum.admin.view import answer_to, error_answer
from quorum.client import (
    BadArgumentsError,
    BadVersionError,
    ClientError,
    ClosedToWritesError,
    CreateMode,
    InvalidArgumentError,
    MultiFailedError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RequestTooLargeError,
    Transaction,
)
from quorum.core.machine import StateMachine
from quorum.core.queries import get_acl
from quorum.errors import OutcomeUnknownError, QuorateError

GATEWAY: Final = web.AppKey[Gateway]("gateway")
INT32_MAX: Final = (1 << 31) - 1
CHILDREN_MAX: Final = 10_000
OPERATIONS_MAX: Final = 1000
#: of a body with data; base64 makes a third more of them
BODY_BYTES_MAX: Final = 6 * 1024 * 1024
ENDPOINTS: Final = Endpoints()
#: of permissions, from the lowest bit on
_LETTERS: Final = "rwcda"
_TRANSACTION_EXAMPLE: Final = (
    'send {"operations": [{"op": "check", "path": "/a", "version": 3}, {"op": "set", "path": "/b", "data": '
    '"aGVsbG8="}]}'
)
Path: TypeAlias = Annotated[str, Says("absolute, as /brokers/ids", pattern="/|(?:/[^/]+)+")]
#: of an operation; the body bounds it, and the client judges it
AnyPath: TypeAlias = Annotated[str, Says("absolute, as /brokers/ids", 0, BODY_BYTES_MAX, r"/[\s\S]*")]
Version: TypeAlias = Annotated[int, Says("that the node must have; -1: any", -INT32_MAX - 1, INT32_MAX)]


class ReadQuery(NamedTuple):
    """Which znode is read, and what of it."""

    path: Path
    linearizable: Annotated[bool, Says("whether all that was committed before counts")] = False
    children: Annotated[bool, Says("whether the children's names are wanted")] = True
    limit: Annotated[int, Says("children that are named, by name", 0, CHILDREN_MAX)] = 1000
    after: Annotated[str, Says("children after this name only")] = ""
    as_of_zxid: Annotated[int, Says("the transaction after which it was so; -1: as it is now", -1)] = -1
    acl: Annotated[bool, Says("whether the access list is wanted; of the past it is not known")] = False


class DeleteQuery(NamedTuple):
    """Which znode is deleted."""

    path: Path
    version: Version = -1


class WriteQuery(NamedTuple):
    """Which znode is written."""

    path: Path
    version: Version = -1
    create: Annotated[bool, Says("whether to create the node where there is none")] = False


class NewData(NamedTuple):
    """What a znode is to hold."""

    data: bytes | None


class CreateStep(NamedTuple):
    """Create a znode."""

    op: Literal["create"]
    path: AnyPath
    data: bytes | None
    mode: CreateMode = CreateMode.PERSISTENT


class SetStep(NamedTuple):
    """Set a znode's data."""

    op: Literal["set"]
    path: AnyPath
    data: bytes | None
    version: Version = -1


class DeleteStep(NamedTuple):
    """Delete a znode."""

    op: Literal["delete"]
    path: AnyPath
    version: Version = -1


class CheckStep(NamedTuple):
    """Compare a znode's version."""

    op: Literal["check"]
    path: AnyPath
    version: Version


class Steps(NamedTuple):
    """What a transaction carries out, all or nothing."""

    operations: Annotated[
        list[CreateStep | SetStep | DeleteStep | CheckStep], Says("in order", 1, OPERATIONS_MAX)
    ]


#: what is known of a Stat in the past
_PAST_STAT: Final = answer(
    (),
    **dict.fromkeys(("czxid", "mzxid", "ctime_ms", "mtime_ms", "version", "aversion"), int),
    **dict.fromkeys(("ephemeral_owner", "data_length", "children_count"), int),
)
_STAT: Final = schema_of(StatFields)
_READ_STAT: TypeAlias = Annotated[Answer, {"anyOf": [_STAT, _PAST_STAT]}]
_STEP_STAT: TypeAlias = Annotated[Answer, {"oneOf": [_STAT, {"type": "null"}]}]
AclRow: TypeAlias = Annotated[Answer, answer(scheme=str, id=str, perms=str)]
ZnodeRead: TypeAlias = Annotated[
    Answer | web.Response,
    answer(("acl",), path=str, data=Base64, stat=_READ_STAT, children=list[str], zxid=int, acl=list[AclRow]),
]
ZnodeWritten: TypeAlias = Annotated[Answer | web.Response, answer(path=str, stat=StatFields)]
ZnodeDeleted: TypeAlias = Annotated[Answer | web.Response, answer(path=str)]
StepResult: TypeAlias = Annotated[Answer, answer(op=str, path=str | None, stat=_STEP_STAT)]
StepResults: TypeAlias = Annotated[Answer | web.Response, answer(results=list[StepResult])]


@ENDPOINTS.add("GET", "/v1/znodes")
async def _get_znode(request: web.Request, query: ReadQuery) -> ZnodeRead:
    """Read a znode."""
    path, machine = query.path, request.app[MACHINE]
    if query.linearizable:
        try:
            async with request.app[GATEWAY].client(identity_of(request)) as client:
                await client.sync(path)
        except (ClientError, TimeoutError) as error:
            return client_answer(error, writes=False)
    if query.as_of_zxid >= 0:
        past = await past_node(request, path, query.as_of_zxid, with_names=query.children)
        if isinstance(past, web.Response):
            return past
        if past is None:
            return _absent(path, NoNodeError.code)
        return _node(query, *past, query.as_of_zxid)
    identities = _identities(request)
    found = read_znode(machine(), path, identities)
    if isinstance(found, int):
        return _absent(path, found)
    data, stat, names = found
    row = _node(query, data, stat._asdict(), names if query.children else (), machine().zxid)
    return {**row, "acl": _acl(machine(), path, identities)} if query.acl else row


def _identities(request: web.Request) -> list[list[str]] | None:
    identity = identity_of(request)
    return None if identity is None else [[*identity]]


def _acl(machine: StateMachine, path: str, identities: list[list[str]] | None) -> list[Answer]:
    found = get_acl(machine, path, identities)
    # Who may read the node may read its list.
    assert not isinstance(found, int)
    return [
        {
            "scheme": scheme,
            "id": identity,
            "perms": "".join(_LETTERS[bit] for bit in range(5) if perms >> bit & 1),
        }
        for perms, scheme, identity in found[0]
    ]


def _node(
    query: ReadQuery, data: bytes | None, stat: Mapping[str, int], names: Sequence[str], zxid: int
) -> Answer:
    children = sorted(name for name in names if name > query.after)[: query.limit]
    return {"path": query.path, "data": encoded(data), "stat": stat, "children": children, "zxid": zxid}


def _absent(path: str, code: int) -> web.Response:
    if code == NoAuthError.code:
        return client_answer(NoAuthError(code, path), writes=False)
    return client_answer(NoNodeError(code, path), writes=False)


@ENDPOINTS.add(
    "PUT", "/v1/znodes", example='send {"data": "aGVsbG8="}: base64, or null', bytes_max=BODY_BYTES_MAX
)
async def _put_znode(request: web.Request, query: WriteQuery, body: NewData) -> ZnodeWritten:
    """Write a znode."""
    path, version, create = query
    authorize_writes(request, (path,))
    try:
        async with request.app[GATEWAY].client(identity_of(request)) as client:
            try:
                stat = await client.set(path, body.data, version)
            except NoNodeError:
                if not create or version != -1:
                    raise
                path, stat = await client.create2(path, body.data)
    except (ClientError, TimeoutError) as error:
        return client_answer(error)
    return {"path": path, "stat": stat._asdict()}


@ENDPOINTS.add("DELETE", "/v1/znodes")
async def _delete_znode(request: web.Request, query: DeleteQuery) -> ZnodeDeleted:
    """Delete a znode."""
    authorize_writes(request, (query.path,))
    try:
        async with request.app[GATEWAY].client(identity_of(request)) as client:
            await client.delete(*query)
    except (ClientError, TimeoutError) as error:
        return client_answer(error)
    return {"path": query.path}


@ENDPOINTS.add("POST", "/v1/transactions", example=_TRANSACTION_EXAMPLE, bytes_max=BODY_BYTES_MAX)
async def _post_transaction(request: web.Request, body: Steps) -> StepResults:
    """Carry out all of some operations, or none."""
    authorize_writes(request, (each.path for each in body.operations if not isinstance(each, CheckStep)))
    transaction = Transaction()
    try:
        for operation in body.operations:
            match operation:
                case CreateStep():
                    transaction.create(operation.path, operation.data, operation.mode)
                case SetStep():
                    transaction.set(operation.path, operation.data, operation.version)
                case DeleteStep():
                    transaction.delete(operation.path, operation.version)
                case CheckStep():
                    transaction.check(operation.path, operation.version)
        async with request.app[GATEWAY].client(identity_of(request)) as client:
            results = await client.multi(transaction)
    except (ClientError, TimeoutError) as error:
        return client_answer(error)
    return {
        "results": [
            {
                "op": each.op,
                "path": result.path,
                "stat": None if result.stat is None else result.stat._asdict(),
            }
            for each, result in zip(body.operations, results, strict=True)
        ]
    }


class _Answer(NamedTuple):
    """How an error of the client is answered where it says no remedy itself."""

    kind: type[QuorateError]
    status: int
    field: str = "path"
    remedy: str = ""


_ANSWERS: Final[Sequence[_Answer]] = (
    _Answer(NoNodeError, 404, remedy="list the children of a node above it; PUT makes it with create=true"),
    _Answer(NoAuthError, 403, remedy="ask with a token whose name its access list has (sasl:NAME)"),
    _Answer(BadVersionError, 409, "version", "read the node again and send the version of its stat"),
    _Answer(NodeExistsError, 409, remedy="read it, or set its data"),
    _Answer(NotEmptyError, 409, remedy="delete its children first"),
    _Answer(NoChildrenForEphemeralsError, 409, remedy="choose a parent that is not ephemeral"),
    _Answer(ClosedToWritesError, 409),
    _Answer(BadArgumentsError, 400),
    _Answer(InvalidArgumentError, 400),
    _Answer(RequestTooLargeError, 413, "data"),
)


def client_answer(error: ClientError | TimeoutError, *, writes: bool = True) -> web.Response:
    """Answer with an error of the client."""
    if isinstance(error, TimeoutError):
        if not writes:
            return error_answer(503, "the read was not answered in time", "see /readyz", retriable=True)
        problem = "the write was not answered in time: its outcome is unknown"
        return answer_to(OutcomeUnknownError(problem, "read the state before repeating it, and see /readyz"))
    cause, operations = (error.cause, "operations") if isinstance(error, MultiFailedError) else (error, "")
    for row in _ANSWERS:
        if isinstance(cause, row.kind):
            more = {"definite": error.definite, "retriable": error.retriable}
            # What a client of ZooKeeper's protocol does about it is no help here.
            own = "" if isinstance(cause, NoAuthError) else error.remedy
            remedy, field = own or row.remedy, operations or row.field
            return error_answer(row.status, error.message, remedy, field=field, **more)
    return answer_to(error)
