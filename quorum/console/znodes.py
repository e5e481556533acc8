"""The endpoints and actions of znodes: a page of the tree, one znode now or then, its history, a change.

Decides how a znode that is gone is shown: as it was before the transaction that deleted it. What may be
changed is the node's to say. No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

from aiohttp import web

from quorum.admin.reading import Says, fields_of, read_query
from quorum.admin.view import BadInputError, json_answer
from quorum.admin.znodes import INT32_MAX, AnyPath, Path
from quorum.console.extension import PageAction, PageCall
from quorum.console.guarding import RefusalError
from quorum.console.upstream import NodeRefusalError
from quorum.console.watching import Watcher

WATCHER: Final = web.AppKey[Watcher]("watcher")
CALL: Final = web.AppKey[Any]("call")
#: children of a page
CHILDREN_MAX: Final = 200
HISTORY_MAX: Final = 500
_EXACT: Final = ("czxid", "mzxid", "pzxid", "ephemeral_owner")
Zxid = Annotated[int, Says("the transaction after which it was so; -1: now", -1)]
Version = Annotated[int, Says("that it was read at; -1: any", -1, INT32_MAX)]


class ChildrenQuery(NamedTuple):
    """Which page of the children is wanted."""

    path: Path
    after: Annotated[str, Says("names after this one")] = ""
    search: Annotated[str, Says("what names contain", most=300)] = ""
    as_of: Zxid = -1
    deleted: bool = False


class ZnodeQuery(NamedTuple):
    """Which znode is wanted."""

    path: Path
    as_of: Zxid = -1


class SetZnode(NamedTuple):
    """Give a znode another value."""

    path: AnyPath
    data: bytes | None
    version: Version


class CreateZnode(NamedTuple):
    """Create a znode."""

    path: AnyPath
    data: bytes | None = None


class DeleteZnode(NamedTuple):
    """Delete a znode."""

    path: AnyPath
    confirm: str
    version: Version = -1


def _query(request: web.Request, kind: Any) -> Any:
    return kind(**read_query(request, fields_of(kind)))


def _as_of(zxid: int) -> int | None:
    return None if zxid < 0 else zxid


def _exact_stat(stat: Mapping[str, Any]) -> dict[str, object]:
    return {name: str(value) if name in _EXACT else value for name, value in stat.items()}


async def _read(call: PageCall, path: str, as_of: int | None, **more: object) -> dict[str, Any] | None:
    """Return a znode as a node has it, None where there is none."""
    query = {"path": path, "as_of_zxid": as_of, **more}
    try:
        return await call.upstream.fields("/v1/znodes", query, authorization=call.authorization)
    except NodeRefusalError as error:
        # What the history does not have, or not yet, has no field.
        if error.status == 404 and error.field == "path":
            return None
        raise


async def get_children(request: web.Request) -> web.Response:
    """Answer a page of a znode's children, those that were deleted among them if they are wanted."""
    query: ChildrenQuery = _query(request, ChildrenQuery)
    call: PageCall = request.app[CALL](request)
    as_of, wanted = _as_of(query.as_of), query.search.lower()
    names: list[str] = []
    after, more = query.after, True
    while more and len(names) <= CHILDREN_MAX:
        # A search looks at all names, a page at its own.
        limit = 10_000 if wanted else CHILDREN_MAX + 1
        found = await _read(call, query.path, as_of, after=after, limit=limit)
        page = found["children"] if found is not None else []
        names += [name for name in page if wanted in name.lower()]
        more = len(page) == limit
        after = page[-1] if page else after
    gone: dict[str, int] = {}
    if query.deleted:
        below = request.app[WATCHER].history.deleted_below(query.path, as_of)
        gone = {path.rpartition("/")[2]: zxid for path, zxid in below.items()}
        gone = {name: zxid for name, zxid in gone.items() if name > query.after and wanted in name.lower()}
    merged = sorted({*names, *gone})
    shown = merged[:CHILDREN_MAX]
    last = shown[-1] if len(merged) > CHILDREN_MAX or more else None
    parent = query.path.rstrip("/")
    items = [
        {
            "name": name,
            "path": f"{parent}/{name}",
            "deleted": str(gone[name]) if name in gone and name not in names else None,
        }
        for name in shown
    ]
    return json_answer({"items": items, "next_after": last})


async def get_znode(request: web.Request) -> web.Response:
    """Answer a znode as it is, as it was, or as it was before it was deleted."""
    query: ZnodeQuery = _query(request, ZnodeQuery)
    call: PageCall = request.app[CALL](request)
    as_of = _as_of(query.as_of)
    found = await _read(call, query.path, as_of, children=False, acl=True if as_of is None else None)
    deleted: int | None = None
    if found is None:
        deleted = request.app[WATCHER].history.deleted_at(query.path, as_of)
        if deleted is None:
            return json_answer({"path": query.path, "found": False})
        found = await _read(call, query.path, deleted - 1, children=False)
        if found is None:
            return json_answer({"path": query.path, "found": False})
    return json_answer(
        {
            "path": query.path,
            "found": True,
            "data": found["data"],
            "stat": _exact_stat(found["stat"]),
            "deleted": None if deleted is None else str(deleted),
            "acl": found.get("acl"),
        }
    )


async def get_history(request: web.Request) -> web.Response:
    """Answer the changes of a znode, the newest first."""
    query: ZnodeQuery = _query(request, ZnodeQuery)
    history = request.app[WATCHER].history
    as_of = _as_of(query.as_of)
    rows = [each for each in history.changes(query.path) if as_of is None or each.zxid <= as_of]
    items = [
        {
            **each._asdict(),
            "zxid": str(each.zxid),
            "session_id": f"0x{each.session_id & (2**64 - 1):x}" if each.session_id else None,
        }
        for each in rows[:HISTORY_MAX]
    ]
    return json_answer(
        {"items": items, "first_zxid": str(history.first_zxid), "more": len(rows) > HISTORY_MAX}
    )


# -- actions -------------------------------------------------------------------------------------------------


def _size(data: bytes | None) -> str:
    count = len(data or b"")
    return f"{count} byte{'s' * (count != 1)}"


def _decoded(found: Mapping[str, Any] | None) -> bytes | None:
    return None if found is None or found["data"] is None else base64.b64decode(found["data"])


async def _conflict(call: PageCall, path: str, version: int, problem: str) -> RefusalError:
    """Return the refusal that says what is there now."""
    now = await _read(call, path, None, children=False)
    current = None if now is None else {"version": now["stat"]["version"], "data": now["data"]}
    told = f"version {current['version']} is there now" if current else "it is not there any more"
    return RefusalError(
        409,
        f"{path} was read at version {version}, and {told}" if version >= 0 else problem,
        "look at what is there now, and change that",
        read_version=version,
        current=current,
    )


async def _preview_set(call: PageCall, body: SetZnode) -> Mapping[str, object]:
    now = await _read(call, body.path, None, children=False)
    if now is None:
        raise RefusalError(404, f"{body.path} does not exist", "create it")
    version = now["stat"]["version"]
    if body.version not in (-1, version):
        raise await _conflict(call, body.path, body.version, "")
    same = _decoded(now) == body.data
    change = "the value stays the same" if same else f"{_size(_decoded(now))} become {_size(body.data)}"
    return {
        "text": f"Set {body.path}: {change}, version {version} becomes {version + 1}.",
        "version": version,
    }


async def _set(call: PageCall, body: SetZnode) -> Mapping[str, object]:
    encoded = None if body.data is None else base64.b64encode(body.data).decode("ascii")
    query = {"path": body.path, "version": body.version}
    try:
        done = await call.upstream.fields(
            *("/v1/znodes", query),
            method="PUT",
            fields={"data": encoded},
            authorization=call.authorization,
        )
    except NodeRefusalError as error:
        if error.status == 409:
            raise await _conflict(call, body.path, body.version, error.problem) from error
        raise
    return {"text": f"{body.path} is set", "path": body.path, "stat": _exact_stat(done["stat"])}


async def _preview_create(call: PageCall, body: CreateZnode) -> Mapping[str, object]:
    if await _read(call, body.path, None, children=False) is not None:
        raise await _conflict(call, body.path, -1, f"{body.path} exists")
    return {"text": f"Create {body.path} with {_size(body.data)}."}


async def _create(call: PageCall, body: CreateZnode) -> Mapping[str, object]:
    encoded = None if body.data is None else base64.b64encode(body.data).decode("ascii")
    operation = {"op": "create", "path": body.path, "data": encoded}
    try:
        await call.upstream.fields(
            "/v1/transactions",
            method="POST",
            fields={"operations": [operation]},
            authorization=call.authorization,
        )
    except NodeRefusalError as error:
        if error.status == 409:
            raise await _conflict(call, body.path, -1, error.problem) from error
        raise
    return {"text": f"{body.path} is created", "path": body.path}


def _check_name(body: DeleteZnode) -> None:
    if body.confirm not in (body.path, body.path.rpartition("/")[2]):
        problem = f"confirm = {body.confirm!r} is not the name of {body.path}"
        raise BadInputError(problem, "type the name of the znode", "confirm")


async def _preview_delete(call: PageCall, body: DeleteZnode) -> Mapping[str, object]:
    now = await _read(call, body.path, None, children=False)
    if now is None:
        raise RefusalError(404, f"{body.path} does not exist", "there is nothing to delete")
    stat = now["stat"]
    if body.version not in (-1, stat["version"]):
        raise await _conflict(call, body.path, body.version, "")
    below = (
        f", and it has {stat['children_count']} children: delete those first"
        if stat["children_count"]
        else ""
    )
    return {"text": f"Delete {body.path}, version {stat['version']}, {_size(_decoded(now))}{below}."}


async def _delete(call: PageCall, body: DeleteZnode) -> Mapping[str, object]:
    _check_name(body)
    query = {"path": body.path, "version": body.version}
    try:
        await call.upstream.fields("/v1/znodes", query, method="DELETE", authorization=call.authorization)
    except NodeRefusalError as error:
        if error.status == 409 and body.version >= 0 and "children" not in error.problem:
            raise await _conflict(call, body.path, body.version, error.problem) from error
        raise
    return {"text": f"{body.path} is deleted", "path": body.path}


ACTIONS: Final = (
    PageAction("set-znode", SetZnode, _preview_set, _set),
    PageAction("create-znode", CreateZnode, _preview_create, _create),
    PageAction("delete-znode", DeleteZnode, _preview_delete, _delete),
)
