"""Endpoints that change who leads and who is a member.

Decides what a well-formed request is, and refuses everything else with the field, the value and what to send;
whether the change can be made is the leader's to say. Any node may be asked. No state.

Source: docs/http.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from quorum.admin.fields import read_fields, refuse_unknown
from quorum.admin.view import VIEW, BadInputError, json_answer
from quorum.config.address import parse_member_address
from quorum.errors import shown

NODE_ID_MAX: Final = 255
ADDRESS_CHARS_MAX: Final = 300
_NUMBER: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)
_INCARNATION: Final = re.compile("[0-9a-f]{32}", re.ASCII)
_LEADER_EXAMPLE: Final = 'send {"node_id": 2}'
_MEMBERS_EXAMPLE: Final = (
    'send {"node_id": 4, "address": "host:port"} to add a node, {"node_id": 4, "replace": true} if its '
    'disk is lost, "incarnation": "<32 hex digits>" with it to name that disk, and "force": true if it is in '
    "use, or the last but one that votes"
)
_FIELDS: Final = {"node_id", "address", "replace", "incarnation", "force"}
_REMOVE_EXAMPLE: Final = "send DELETE /v1/members?node_id=4"


async def post_leader(request: web.Request) -> web.Response:
    """Hand leadership to a voter."""
    fields = await read_fields(request, {"node_id"}, _LEADER_EXAMPLE)
    return json_answer(await request.app[VIEW].transfer_leadership(_node_id(fields, _LEADER_EXAMPLE)))


async def post_members(request: web.Request) -> web.Response:
    """Add a node, or replace a member's disk."""
    view = request.app[VIEW]
    fields = await read_fields(request, _FIELDS, _MEMBERS_EXAMPLE)
    node_id = _node_id(fields, _MEMBERS_EXAMPLE)
    if "replace" not in fields:
        for field in ("incarnation", "force"):
            if field in fields:
                raise BadInputError(f"{field} is given without replace", _MEMBERS_EXAMPLE, field)
        return json_answer(await view.add_member(node_id, _address(fields)))
    if fields["replace"] is not True:
        raise BadInputError(f"replace = {shown(fields['replace'])} is not true", _MEMBERS_EXAMPLE, "replace")
    if "address" in fields:
        problem = "address and replace cannot both be given: a replaced node keeps its address"
        raise BadInputError(problem, _MEMBERS_EXAMPLE, "address")
    if type(fields.get("force", False)) is not bool:
        problem = f"force = {shown(fields['force'])} is neither true nor false"
        raise BadInputError(problem, _MEMBERS_EXAMPLE, "force")
    force = fields.get("force", False) is True
    return json_answer(await view.replace_member(node_id, _incarnation(fields), force=force))


async def delete_members(request: web.Request) -> web.Response:
    """Remove a member."""
    refuse_unknown("query", set(request.query), {"node_id"}, _REMOVE_EXAMPLE)
    given = request.query.getall("node_id", [])
    if len(given) != 1:
        problem = f"node_id is given {len(given)} times in the query, not once"
        raise BadInputError(problem, _REMOVE_EXAMPLE, "node_id")
    number = int(given[0]) if _NUMBER.fullmatch(given[0]) else given[0]
    node_id = _node_id({"node_id": number}, _REMOVE_EXAMPLE)
    return json_answer(await request.app[VIEW].remove_member(node_id))


def _node_id(fields: Mapping[str, object], example: str) -> int:
    if "node_id" not in fields:
        raise BadInputError("the body lacks the field node_id", example, "node_id")
    node_id = fields["node_id"]
    if type(node_id) is not int or not 1 <= node_id <= NODE_ID_MAX:
        problem = f"node_id = {shown(node_id)} is no node id; ids are whole numbers from 1 to {NODE_ID_MAX}"
        raise BadInputError(problem, example, "node_id")
    return node_id


def _incarnation(fields: Mapping[str, object]) -> str:
    """Return the incarnation that is to be retired, "" if none is named."""
    if "incarnation" not in fields:
        return ""
    incarnation = fields["incarnation"]
    if not isinstance(incarnation, str) or not _INCARNATION.fullmatch(incarnation):
        problem = f"incarnation = {shown(incarnation)} is no text of 32 lower-case hex digits"
        raise BadInputError(problem, _MEMBERS_EXAMPLE, "incarnation")
    return incarnation


def _address(fields: Mapping[str, object]) -> str:
    if "address" not in fields:
        raise BadInputError("the body lacks the field address (or replace)", _MEMBERS_EXAMPLE, "address")
    address = fields["address"]
    if not isinstance(address, str) or not address.isascii() or not 0 < len(address) <= ADDRESS_CHARS_MAX:
        problem = f"address = {shown(address)} is no text of 1 to {ADDRESS_CHARS_MAX} ASCII characters"
        raise BadInputError(problem, _MEMBERS_EXAMPLE, "address")
    try:
        return str(parse_member_address(address))
    except ValueError as error:
        raise BadInputError(f"address = {shown(address)}: {error}", _MEMBERS_EXAMPLE, "address") from error
