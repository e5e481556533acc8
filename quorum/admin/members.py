"""Endpoints that show and change the leader and the members.

Decides what a well-formed request is; whether the change can be made is the leader's to say. Any node may be
asked. No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.endpoint import Answer, Endpoints, answer
from quorum.admin.reading import Says
from quorum.admin.view import STATUS_VIEW, BadInputError
from quorum.config.address import parse_member_address
from quorum.config.admin_port import AdminRole
from quorum.errors import shown

NODE_ID_MAX: Final = 255
ADDRESS_CHARS_MAX: Final = 300
ENDPOINTS: Final = Endpoints()
#: Has the leader carry out (action, node id, address, incarnation, force); returns the log index once that is
#: applied here, or raises a QuorateError that says whether it is definite and retriable.
Ask: TypeAlias = Callable[[str, int, str, str, bool], Awaitable[int]]
ASK: Final = web.AppKey[Ask]("ask")
_MEMBERS_EXAMPLE: Final = (
    'send {"node_id": 4, "address": "host:port"} to add a node, {"node_id": 4, "replace": true} if its '
    'disk is lost, "incarnation": "<32 hex digits>" with it to name that disk, and "force": true if it is in '
    "use, or the last but one that votes"
)

NodeId: TypeAlias = Annotated[int, Says("the member", 1, NODE_ID_MAX)]


LeaderNow: TypeAlias = Annotated[Answer, answer(leader_id=int | None, term=int | None)]
MemberItems: TypeAlias = Annotated[Answer, answer(items=list[dict[str, object]])]
ChangedMembers: TypeAlias = Annotated[Answer, answer(log_index=int, members=list[dict[str, object]])]


class NamedMember(NamedTuple):
    """A node that is named."""

    node_id: NodeId


class NewMember(NamedTuple):
    """A node to add, or a member whose disk is replaced."""

    node_id: NodeId
    address: Annotated[str | None, Says("of its peer port", 1, ADDRESS_CHARS_MAX)] = None
    replace: Literal[True] | None = None
    incarnation: Annotated[str | None, Says("32 lower-case hex digits", pattern="[0-9a-f]{32}")] = None
    force: bool | None = None


@ENDPOINTS.add("GET", "/v1/leader")
async def _get_leader(request: web.Request) -> LeaderNow:
    """The leader."""
    status = request.app[STATUS_VIEW].status()
    return {"leader_id": status["leader_id"], "term": status["term"]}


@ENDPOINTS.add("POST", "/v1/leader", example='send {"node_id": 2}')
async def _post_leader(request: web.Request, body: NamedMember) -> LeaderNow:
    """Hand leadership to a voter."""
    await request.app[ASK]("TRANSFER", body.node_id, "", "", False)
    return await _get_leader(request)


@ENDPOINTS.add("GET", "/v1/members")
async def _get_members(request: web.Request) -> MemberItems:
    """The members."""
    return {"items": request.app[STATUS_VIEW].status()["members"]}


@ENDPOINTS.add("POST", "/v1/members", role=AdminRole.ADMIN, example=_MEMBERS_EXAMPLE)
async def _post_members(request: web.Request, body: NewMember) -> ChangedMembers:
    """Add a node, or replace a member's disk."""
    if body.replace is None:
        for field in ("incarnation", "force"):
            if getattr(body, field) is not None:
                raise BadInputError(f"{field} is given without replace", _MEMBERS_EXAMPLE, field)
        return await _change(request, "ADD", body.node_id, address=_address(body.address))
    if body.address is not None:
        problem = "address and replace cannot both be given: a replaced node keeps its address"
        raise BadInputError(problem, _MEMBERS_EXAMPLE, "address")
    incarnation, force = body.incarnation or "", body.force is True
    return await _change(request, "REPLACE", body.node_id, incarnation=incarnation, force=force)


@ENDPOINTS.add("DELETE", "/v1/members", role=AdminRole.ADMIN)
async def _delete_members(request: web.Request, query: NamedMember) -> ChangedMembers:
    """Remove a member."""
    return await _change(request, "REMOVE", query.node_id)


async def _change(
    request: web.Request,
    action: str,
    node_id: int,
    *,
    address: str = "",
    incarnation: str = "",
    force: bool = False,
) -> ChangedMembers:
    log_index = await request.app[ASK](action, node_id, address, incarnation, force)
    return {"log_index": log_index, "members": request.app[STATUS_VIEW].status()["members"]}


def _address(address: str | None) -> str:
    if address is None:
        raise BadInputError("the body lacks the field address (or replace)", _MEMBERS_EXAMPLE, "address")
    if not address or not address.isascii():
        problem = f"address = {shown(address)} is not a text of 1 to {ADDRESS_CHARS_MAX} ASCII characters"
        raise BadInputError(problem, _MEMBERS_EXAMPLE, "address")
    try:
        return str(parse_member_address(address))
    except ValueError as error:
        raise BadInputError(f"address = {shown(address)}: {error}", _MEMBERS_EXAMPLE, "address") from error
