"""What walks all partitions in answer to one request gives way to others between them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import cast

import pytest

from controller.core.model import KnownState, KnownTopic, LiveBroker
from controller.core.options import ControllerOptions, Counters
from controller.election.plans import Mandate
from controller.runtime.senders import Connection
from controller.runtime.term import Term
from controller.wire.connection import BrokerUnreachableError
from quorum.client import Client, NoNodeError, OperationResult, Transaction
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform import pace
from tests.support.trust import TRUST

TOPICS, PARTITIONS = 4, 500
ALL = TOPICS * PARTITIONS


class AgreeingQuorum:
    """A quorum that writes all that it is given, and has no requests of administrators."""

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        return [OperationResult(None, None)] * len(transaction)

    async def get(self, path: str) -> object:
        raise NoNodeError(-101, path)


async def reach_nobody(_broker_id: int, _broker: LiveBroker) -> Connection:
    raise BrokerUnreachableError("nobody listens", "this is a test")


@pytest.fixture
async def term() -> AsyncIterator[Term]:
    """A term with many partitions, of which the second replica leads each."""
    term = Term(
        cast("Client", AgreeingQuorum()),
        Mandate(1, ControllerEpoch(2), 0),
        options=ControllerOptions(),
        default_settings=TopicSettings(),
        connect=reach_nobody,
        counters=Counters(),
        rng=random.Random(1),
        trust=TRUST,
    )
    for each in (1, 2):
        record = BrokerRecord(None, -1, (), {}, timestamp_ms=0)
        term.model.brokers[each] = LiveBroker(BrokerGeneration(each), record)
    state = PartitionStateRecord(ControllerEpoch(1), 2, LeaderEpoch(0), (1, 2))
    for topic in (f"t-{number}" for number in range(TOPICS)):
        replicas = dict.fromkeys(range(PARTITIONS), (1, 2))
        term.model.topics[topic] = KnownTopic(TopicRecord(uuid.uuid4(), replicas), 0)
        for partition in replicas:
            term.model.states[PartitionKey(topic, partition)] = KnownState(state, PartitionVersion(0), None)
    yield term
    await term._carrying.close_all()


async def elect(term: Term) -> Sequence[object]:
    return list(await term.elections.elect(None, unclean=False))


async def elect_in_vain(term: Term) -> Sequence[object]:
    return list(await term.elections.elect(list(term.model.states), unclean=True))


async def reassign(term: Term) -> Sequence[object]:
    return list(await term.reassignments.begin(dict.fromkeys(term.model.states, (2, 1))))


@pytest.mark.parametrize("ask", [elect, elect_in_vain, reassign])
async def test_a_request_about_all_partitions_lets_others_have_their_turns(
    term: Term, ask: Callable[[Term], Awaitable[Sequence[object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "TURN_MS_MAX", 0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    assert len(await ask(term)) == ALL
    beside.cancel()
    # One for each partition, but for the last.
    assert turns >= ALL - 1
    if ask is elect:
        assert {known.state.leader for known in term.model.states.values()} == {1}


async def test_what_is_decided_in_parts_is_decided_as_a_whole(
    term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.runtime.deciding.DECIDED_AT_ONCE_MAX", 7)
    del term.model.brokers[2], term.model.states[PartitionKey("t-3", 9)]
    assert await term._decider.settle(None)
    states = [known.state for known in term.model.states.values()]
    assert [(each.leader, each.isr) for each in states] == [(1, (1,))] * ALL
