"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and what administrators ask of transactions.

Translates between messages and the coordinator's term; decides nothing about transactions.
Source: Kafka's protocol guide; KIP-98, KIP-890 (AddPartitionsToTxn 4 and 5, which brokers send).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from broker.core.transactions.inputs import (
    AddGroup,
    AddPartitions,
    EndTransaction,
    Outcome,
    Producer,
    StoredTransaction,
    TransactionRequest,
    VerifyPartitions,
)
from broker.groups.errors import GroupRefusedError
from broker.server.api.groups import term_of
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import TransactionState, partitions_by_topic

#: The first AddPartitionsToTxn with several transactions, and the first that knows TRANSACTION_ABORTABLE.
_MANY_VERSION: Final = 4
_ABORTABLE_VERSION: Final = 5
#: The first AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that know PRODUCER_FENCED.
FENCED_VERSION: Final = 2


async def asked(services: BrokerServices, request: TransactionRequest) -> Outcome:
    """Return the outcome of a request; a code also where this broker is not the coordinator."""
    try:
        return await (await term_of(services)).transactions.ask(request)
    except GroupRefusedError as error:
        return error.error_code


def fenced_code(outcome: Outcome, call: Call, fenced_version: int) -> ErrorCode:
    """Return the code of an outcome, as the version of a request knows it."""
    assert isinstance(outcome, ErrorCode), outcome
    if outcome is ErrorCode.PRODUCER_FENCED and call.request.api_version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return outcome


async def end_txn(services: BrokerServices, call: Call) -> Answer:
    """Commit or abort."""
    body = call.body
    producer = Producer(body.producer_id, body.producer_epoch)
    outcome = await asked(services, EndTransaction(body.transactional_id, producer, body.committed))
    return {"error_code": fenced_code(outcome, call, FENCED_VERSION)}


async def add_offsets_to_txn(services: BrokerServices, call: Call) -> Answer:
    """Let offsets of a group belong to a transaction."""
    body = call.body
    producer = Producer(body.producer_id, body.producer_epoch)
    outcome = await asked(services, AddGroup(body.transactional_id, producer, body.group_id))
    return {"error_code": fenced_code(outcome, call, FENCED_VERSION)}


async def add_partitions_to_txn(services: BrokerServices, call: Call) -> Answer:
    """Let partitions belong to transactions, or say whether they do."""
    body = call.body
    if call.request.api_version < _MANY_VERSION:
        producer = Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        keys = [
            PartitionKey(topic.name, each) for topic in body.v3_and_below_topics for each in topic.partitions
        ]
        codes = await _added(services, call, body.v3_and_below_transactional_id, producer, keys)
        return {"results_by_topic_v3_and_below": _topic_rows(codes)}
    added = [
        _added(
            *(services, call, each.transactional_id, Producer(each.producer_id, each.producer_epoch)),
            [PartitionKey(topic.name, index) for topic in each.topics for index in topic.partitions],
            verify_only=each.verify_only,
        )
        for each in body.transactions
    ]
    # One that waits for the end of its transaction does not hold up the others.
    codes_of = zip(body.transactions, await asyncio.gather(*added), strict=True)
    rows = [
        {"transactional_id": each.transactional_id, "topic_results": _topic_rows(codes)}
        for each, codes in codes_of
    ]
    return {"error_code": ErrorCode.NONE, "results_by_transaction": rows}


async def _added(
    services: BrokerServices,
    call: Call,
    transactional_id: str,
    producer: Producer,
    keys: Sequence[PartitionKey],
    *,
    verify_only: bool = False,
) -> Mapping[PartitionKey, ErrorCode]:
    """Return the code of each partition of one transaction."""
    version, known = call.request.api_version, services.view.partition
    if not verify_only and any(known(*key) is None for key in keys):
        missing, other = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return {key: missing if known(*key) is None else other for key in keys}
    kind = VerifyPartitions if verify_only else AddPartitions
    outcome = await asked(services, kind(transactional_id, producer, frozenset(keys)))
    if isinstance(outcome, Mapping):
        if version >= _ABORTABLE_VERSION:
            return outcome
        return {
            key: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
            for key, code in outcome.items()
        }
    return dict.fromkeys(keys, fenced_code(outcome, call, FENCED_VERSION))


def _topic_rows(codes: Mapping[PartitionKey, ErrorCode]) -> list[Values]:
    topics: dict[str, list[Values]] = {}
    for (topic, partition), code in codes.items():
        row = {"partition_index": partition, "partition_error_code": code}
        topics.setdefault(topic, []).append(row)
    return [{"name": topic, "results_by_partition": rows} for topic, rows in topics.items()]


# -- administration ------------------------------------------------------------------------------------------


async def describe_transactions(services: BrokerServices, call: Call) -> Answer:
    """Describe transactional ids: state, producer, partitions."""
    names = dict.fromkeys(call.body.transactional_ids)
    try:
        machine = (await term_of(services)).transactions.machine
    except GroupRefusedError as error:
        return {"transaction_states": [_described(name, None, error.error_code) for name in names]}
    return {"transaction_states": [_allowed(call, _described(name, machine.find(name))) for name in names]}


def _described(
    name: str, found: StoredTransaction | None, code: ErrorCode = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
) -> Values:
    record = None if found is None else found.record
    if record is None:
        return {
            "error_code": code if name else ErrorCode.INVALID_REQUEST,
            "transactional_id": name,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": 0,
            "producer_id": -1,
            "producer_epoch": -1,
            "topics": (),
        }
    topics = partitions_by_topic(record.partitions).items()
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": name,
        "transaction_state": record.state.value,
        "transaction_timeout": record.timeout_ms,
        "transaction_start_time": record.start_timestamp_ms,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics],
    }


def _allowed(call: Call, described: Values) -> Values:
    """Leave out topics that the principal may not describe."""
    topics = [
        each
        for each in described["topics"]
        if call.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, each["topic"])
    ]
    return {**described, "topics": topics}


async def list_transactions(services: BrokerServices, call: Call) -> Answer:
    """List transactional ids, all or those in some states, of some producers, or open for long.

    Administrators ask every broker and put the answers together, so another broker than the coordinator has
    none.
    """
    body = call.body
    known = {each.value for each in TransactionState}
    strange = [each for each in dict.fromkeys(body.state_filters) if each not in known]
    rows: list[Values] = []
    candidate = services.groups()
    try:
        found = (await term_of(services)).transactions.machine.all()
    except GroupRefusedError:
        unknown = candidate is None or candidate.holder_id in (None, services.broker_id)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if unknown else ErrorCode.NONE
        return {"error_code": code, "unknown_state_filters": strange, "transaction_states": ()}
    states, ids = set(body.state_filters), set(body.producer_id_filters)
    longer_ms, now_ms = getattr(body, "duration_filter", -1), time.time_ns() // 1_000_000
    for each in found:
        record = each.record
        assert record is not None, "the machine lists what is stored"
        is_short = longer_ms >= 0 and (
            record.start_timestamp_ms < 0 or now_ms - record.start_timestamp_ms <= longer_ms
        )
        may_describe = call.access.allows(
            Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id
        )
        if not may_describe:
            continue
        if (states and record.state not in states) or (ids and record.producer_id not in ids) or is_short:
            continue
        rows.append(
            {
                "transactional_id": each.transactional_id,
                "producer_id": record.producer_id,
                "transaction_state": record.state.value,
            }
        )
    return {"error_code": ErrorCode.NONE, "unknown_state_filters": strange, "transaction_states": rows}
