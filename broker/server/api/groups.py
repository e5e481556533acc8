"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what administrators ask of groups.

Translates between messages and the coordinator's term; decides nothing about groups. A broker that is not the
coordinator says so.
Source: Kafka's protocol guide; ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

import uuid
from typing import Final

from broker.core.groups.classic import ClassicGroup
from broker.core.groups.inputs import (
    ClassicHeartbeat,
    DeleteGroup,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from broker.core.groups.model import GroupState, Joined, JoinRequest, SyncAnswer, SyncRequest
from broker.groups.errors import GroupRefusedError, NotCoordinatorError
from broker.groups.term import GroupsTerm
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, milliseconds
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.numbers import GenerationId

#: The first JoinGroup whose sender comes again with the id that it got, and can be spared an assignment.
_MEMBER_ID_VERSION: Final = 4
_SKIP_VERSION: Final = 9
#: The first LeaveGroup with several members.
_LEAVE_MANY_VERSION: Final = 3
#: The first DescribeGroups that says of a group that there is none (KIP-1043).
_NOT_FOUND_VERSION: Final = 6


async def term_of(services: BrokerServices) -> GroupsTerm:
    """Return the term of this broker as the coordinator, once its groups are loaded."""
    candidate = services.groups()
    term = None if candidate is None else candidate.term
    if term is None:
        raise NotCoordinatorError
    await term.ready()
    return term


async def code_of(services: BrokerServices, asked: GroupRequest) -> ErrorCode:
    """Return the code that is the whole outcome of a request."""
    try:
        return await (await term_of(services)).ask(asked, ErrorCode)
    except GroupRefusedError as error:
        return error.error_code


async def join_group(services: BrokerServices, call: Call) -> Answer:
    """Take a member into the next generation of its group."""
    body = call.body
    session_ms = milliseconds(body.session_timeout)
    rebalance_ms = milliseconds(body.rebalance_timeout) if call.request.api_version >= 1 else session_ms
    request = JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=call.request.client_id or "",
        client_host=f"/{call.request.client_host}",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=max(rebalance_ms, 0),
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        needs_member_id=call.request.api_version >= _MEMBER_ID_VERSION,
        may_skip_assignment=call.request.api_version >= _SKIP_VERSION,
    )
    try:
        new_member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        asked = JoinGroup(body.group_id, request, new_member_id)
        joined = await (await term_of(services)).ask(asked, Joined)
    except GroupRefusedError as error:
        joined = Joined(error.error_code, body.member_id)
    return {
        "error_code": joined.error_code,
        "generation_id": joined.generation_id,
        "protocol_type": joined.protocol_type,
        # Null is allowed from version 7 on.
        "protocol_name": "" if joined.protocol is None and call.request.api_version < 7 else joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in joined.members
        ],
    }


async def sync_group(services: BrokerServices, call: Call) -> Answer:
    """Answer with the member's assignment."""
    body = call.body
    request = SyncRequest(
        body.member_id,
        getattr(body, "group_instance_id", None),
        GenerationId(body.generation_id),
        getattr(body, "protocol_type", None),
        getattr(body, "protocol_name", None),
        {each.member_id: bytes(each.assignment) for each in body.assignments},
    )
    try:
        synced = await (await term_of(services)).ask(SyncGroup(body.group_id, request), SyncAnswer)
    except GroupRefusedError as error:
        synced = SyncAnswer(error.error_code)
    return {
        "error_code": synced.error_code,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(services: BrokerServices, call: Call) -> Answer:
    """Keep a member alive, or ask it to join again."""
    body = call.body
    instance_id = getattr(body, "group_instance_id", None)
    generation_id = GenerationId(body.generation_id)
    asked = ClassicHeartbeat(body.group_id, body.member_id, instance_id, generation_id)
    return {"error_code": await code_of(services, asked)}


async def leave_group(services: BrokerServices, call: Call) -> Answer:
    """Remove members from their group."""
    body = call.body
    if call.request.api_version >= _LEAVE_MANY_VERSION:
        leaving = list(dict.fromkeys((each.member_id, each.group_instance_id) for each in body.members))
    else:
        leaving = [(body.member_id, None)]
    try:
        left = await (await term_of(services)).ask(LeaveGroup(body.group_id, leaving), list)
    except GroupRefusedError as error:
        return {"error_code": error.error_code, "members": ()}
    if call.request.api_version < _LEAVE_MANY_VERSION:
        return {"error_code": left[0][0]}
    rows = [
        {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
        for (member_id, instance_id), (code, _) in zip(leaving, left, strict=True)
    ]
    return {"error_code": ErrorCode.NONE, "members": rows}


# -- administration ------------------------------------------------------------------------------------------


async def describe_groups(services: BrokerServices, call: Call) -> Answer:
    """Describe groups: state, members, assignments."""
    names = dict.fromkeys(call.body.groups)
    try:
        term = await term_of(services)
    except GroupRefusedError as error:
        return {"groups": [_refused(name, error) for name in names]}
    version = call.request.api_version
    return {
        "groups": (with_group_operations(call, name, _classic_row(term, name, version)) for name in names)
    }


def with_group_operations(call: Call, group_id: str, row: Values) -> Values:
    """Say in a group's row what its reader may do to the group, if the request wants that (KIP-430)."""
    if not getattr(call.body, "include_authorized_operations", False):
        return row
    return {**row, "authorized_operations": call.access.operations(ResourceType.GROUP, group_id)}


def _refused(group_id: str, error: GroupRefusedError) -> Values:
    return {**_described(group_id, "", error.error_code), "error_message": error.message}


def _classic_row(term: GroupsTerm, group_id: str, api_version: int) -> Values:
    try:
        slot = term.group(group_id)
    except GroupRefusedError as error:
        return _refused(group_id, error)
    machine = None if slot is None else slot.machine
    problem = term.machine.problem(group_id)
    if isinstance(machine, ClassicGroup):
        return {**_described_group(machine), "error_message": problem}
    # A group whose coordinator assigns is described by ConsumerGroupDescribe.
    code = ErrorCode.GROUP_ID_NOT_FOUND if api_version >= _NOT_FOUND_VERSION else ErrorCode.NONE
    problem = problem or f"there is no group {group_id!r} whose members assign"
    return {**_described(group_id, GroupState.DEAD.value, code), "error_message": problem}


def _described(group_id: str, state: str, error_code: ErrorCode = ErrorCode.NONE) -> Values:
    return {
        "error_code": error_code,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _described_group(group: ClassicGroup) -> Values:
    stable = group.state is GroupState.STABLE
    members = [
        {
            "member_id": each.member_id,
            "group_instance_id": each.instance_id,
            "client_id": each.client_id,
            "client_host": each.client_host,
            "member_metadata": dict(each.protocols).get(group.protocol or "", b"") if stable else b"",
            "member_assignment": each.assignment if stable else b"",
        }
        for each in group.members
    ]
    return {
        **_described(group.group_id, group.state.value),
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": members,
    }


async def list_groups(services: BrokerServices, call: Call) -> Answer:
    """List groups, all or those in some states or of some types.

    Administrators ask every broker and put the answers together, so another broker than the coordinator has
    none.
    """
    candidate = services.groups()
    try:
        slots = (await term_of(services)).machine.slots()
    except GroupRefusedError:
        unknown = candidate is None or candidate.holder_id in (None, services.broker_id)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if unknown else ErrorCode.NONE
        return {"error_code": code, "groups": ()}
    states = {each.lower() for each in getattr(call.body, "states_filter", ())}
    types = {each.lower() for each in getattr(call.body, "types_filter", ())}
    rows = []
    access = call.access
    describes_all = access.allows(Operation.DESCRIBE, ResourceType.CLUSTER)
    for slot in slots:
        if not describes_all and not access.allows(Operation.DESCRIBE, ResourceType.GROUP, slot.group_id):
            continue
        state = slot.machine.state.value
        group_type = "classic" if isinstance(slot.machine, ClassicGroup) else "consumer"
        if (not states or state.lower() in states) and (not types or group_type in types):
            rows.append(
                {
                    "group_id": slot.group_id,
                    "protocol_type": slot.machine.protocol_type or "",
                    "group_state": state,
                    "group_type": group_type,
                }
            )
    return {"error_code": ErrorCode.NONE, "groups": rows}


async def delete_groups(services: BrokerServices, call: Call) -> Answer:
    """Remove groups without members, and their offsets."""
    names = dict.fromkeys(call.body.groups_names)
    return {
        "results": [
            {"group_id": name, "error_code": await code_of(services, DeleteGroup(name))} for name in names
        ]
    }
