"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose coordinator assigns.

Translates between messages and the coordinator's term; decides nothing about groups.
Source: KIP-848; Kafka's protocol guide.
"""

from __future__ import annotations

import uuid
from typing import Final

from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.inputs import ConsumerHeartbeat
from broker.core.groups.model import JOIN_EPOCH, HeartbeatAnswer, HeartbeatRequest
from broker.groups.errors import GroupRefusedError
from broker.groups.term import GroupsTerm
from broker.server.api.groups import term_of, with_group_operations
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, milliseconds
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import Assignment, ConsumerMemberRecord

#: What a member speaks (KIP-1099).
_CLASSIC: Final = 0
_CONSUMER: Final = 1
#: The first heartbeat whose sender names itself.
_OWN_ID_VERSION: Final = 1


async def consumer_group_heartbeat(services: BrokerServices, call: Call) -> Answer:
    """Take in what a member says; answer what it may own."""
    body = call.body
    member_id = body.member_id
    if not member_id:
        if call.request.api_version >= _OWN_ID_VERSION or body.member_epoch != JOIN_EPOCH:
            return _answered(HeartbeatAnswer(ErrorCode.INVALID_REQUEST, "", message="the member has no id"))
        member_id = str(uuid.uuid4())
    owned = body.topic_partitions
    request = HeartbeatRequest(
        member_id=member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack=body.rack_id,
        client_id=call.request.client_id or "",
        client_host=f"/{call.request.client_host}",
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout),
        topics=None if body.subscribed_topic_names is None else tuple(body.subscribed_topic_names),
        topic_pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None if owned is None else {each.topic_id: tuple(each.partitions) for each in owned},
    )
    try:
        asked = ConsumerHeartbeat(body.group_id, request)
        answer = await (await term_of(services)).ask(asked, HeartbeatAnswer)
    except GroupRefusedError as error:
        answer = HeartbeatAnswer(error.error_code, member_id, message=error.message)
    is_taken = answer.error_code is ErrorCode.NONE
    return _answered(answer, services.config.groups.group_consumer_heartbeat_interval_ms if is_taken else 0)


def _answered(answer: HeartbeatAnswer, interval_ms: int = 0) -> Values:
    return {
        "error_code": answer.error_code,
        "error_message": answer.message,
        "member_id": answer.member_id or None,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": interval_ms,
        "assignment": None if answer.assignment is None else {"topic_partitions": _rows(answer.assignment)},
    }


def _rows(assignment: Assignment) -> list[Values]:
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in assignment.items()]


async def consumer_group_describe(services: BrokerServices, call: Call) -> Answer:
    """Describe groups whose coordinator assigns."""
    names = dict.fromkeys(call.body.group_ids)
    try:
        term = await term_of(services)
    except GroupRefusedError as error:
        return {"groups": [_not_described(name, error.error_code, error.message) for name in names]}
    return {"groups": (with_group_operations(call, name, _row(term, name)) for name in names)}


def _row(term: GroupsTerm, group_id: str) -> Values:
    try:
        slot = term.group(group_id)
    except GroupRefusedError as error:
        return _not_described(group_id, error.error_code, error.message)
    if slot is None or not isinstance(slot.machine, ConsumerGroup):
        problem = f"there is no group {group_id!r} whose coordinator assigns"
        return _not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, problem)
    return {**_described(slot.machine), "error_message": term.machine.problem(group_id)}


def _not_described(group_id: str, error_code: ErrorCode, message: str | None = None) -> Values:
    return {
        "error_code": error_code,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


def _described(group: ConsumerGroup) -> Values:
    names = {topic_id: name for name, (topic_id, _) in group.topics.items()}

    def rows(assignment: Assignment) -> Values:
        # A topic that is gone has no name any more.
        found = [{**row, "topic_name": names.get(row["topic_id"], "")} for row in _rows(assignment)]
        return {"topic_partitions": found}

    def member(record: ConsumerMemberRecord) -> Values:
        return {
            "member_id": record.member_id,
            "instance_id": record.instance_id,
            "rack_id": record.rack,
            "member_epoch": record.member_epoch,
            "client_id": record.client_id,
            "client_host": record.client_host,
            "subscribed_topic_names": record.topics,
            "subscribed_topic_regex": record.topic_pattern,
            "assignment": rows(record.assigned),
            "target_assignment": rows(record.target),
            "member_type": _CONSUMER if record.classic is None else _CLASSIC,
        }

    return {
        **_not_described(group.group_id, ErrorCode.NONE),
        "group_state": group.state.value,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.group_epoch,
        "assignor_name": group.assignor,
        "members": [member(each) for each in group.members],
    }
