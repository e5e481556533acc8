"""What a round of sampling does where leaders hang, fail or have too many partitions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.core.cluster_view import BrokerEndpoints, ClusterView, PartitionView, TopicView
from broker.core.groups.slot import GroupSlot
from broker.groups import lag
from broker.groups.lag import BATCH_MAX, SERIES_MAX, LagSampler, LagsSeen
from broker.groups.lag_metrics import lag_metrics
from broker.wire.codec import decode_request, encode_response
from controller.core.brokers import BROKER_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnection, BrokerUnreachableError
from quorum.metadata.paths import PartitionKey


class Leader:
    """Answers every partition with one end, or with an error."""

    closed = False

    def __init__(self, log_end: int, refuses: int = -1) -> None:
        self.log_end, self.refuses = log_end, refuses
        self.asked: list[int] = []

    async def request(self, api_key: int, version: int, body: bytes, **_: Any) -> memoryview:
        request: Any = decode_request(api_key, version, memoryview(body))
        rows = [each.partition_index for topic in request.topics for each in topic.partitions]
        self.asked.append(len(rows))
        answers = [
            {
                "partition_index": each,
                "error_code": ErrorCode.OFFSET_NOT_AVAILABLE if each == self.refuses else ErrorCode.NONE,
                "timestamp": -1,
                "offset": -1 if each == self.refuses else self.log_end,
                "leader_epoch": 0,
            }
            for each in rows
        ]
        topics = [{"name": request.topics[0].name, "partitions": answers}]
        return memoryview(encode_response(ApiKey.LIST_OFFSETS, 7, {"topics": topics}))

    def close(self) -> None:
        self.closed = True


def view_of(leaders: Sequence[int]) -> ClusterView:
    """Return a view of one topic, whose partitions have these leaders."""
    view = ClusterView()
    for each in set(leaders):
        view.brokers[each] = BrokerEndpoints(each, None, {BROKER_LISTENER: ("h", each)})
    partitions = {index: PartitionView(each, 0, (each,), (each,), ()) for index, each in enumerate(leaders)}
    view.topics["orders"] = TopicView(None, partitions)
    return view


def slot(group_id: str, partitions: int) -> GroupSlot:
    offsets = {PartitionKey("orders", each): SimpleNamespace(offset=each % 7) for each in range(partitions)}
    return cast("GroupSlot", SimpleNamespace(group_id=group_id, stored=SimpleNamespace(offsets=offsets)))


def sampler(
    view: ClusterView, slots: list[GroupSlot], leaders: dict[int, Leader | None], tick_ms: int = 1000
) -> LagSampler:
    """Return a sampler; a leader that is None hangs, one that is missing cannot be reached."""

    async def connect(broker_id: int) -> BrokerConnection:
        if broker_id not in leaders:
            raise BrokerUnreachableError(f"broker {broker_id} cannot be reached")
        found = leaders[broker_id]
        if found is None:
            await asyncio.Event().wait()
        return cast("BrokerConnection", found)

    clock = itertools.count(0, tick_ms)
    return LagSampler(lambda: slots, view, connect, lambda: next(clock))


async def test_leaders_that_hang_or_fail_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "LEADER_PATIENCE_S", 0.05)
    sampled = sampler(view_of([1, 2, 3, 4]), [slot("billing", 5)], {1: Leader(10), 2: None, 4: Leader(9, 3)})
    await sampled.sample()
    assert sampled.seen.groups is not None
    found = sampled.seen.groups["billing"]
    # 1 hangs, 2 cannot be reached, 3 is refused by its leader, 4 is unknown to the view.
    assert found.partitions == {PartitionKey("orders", 0): (10, 0.0)}
    assert found.unknown == 4


async def test_many_partitions_are_asked_in_batches_and_their_series_are_bounded() -> None:
    leader, count = Leader(10), SERIES_MAX + 50
    sampled = sampler(view_of([1] * count), [slot("billing", count)], {1: leader})
    await sampled.sample()
    assert max(leader.asked) == BATCH_MAX
    assert sum(leader.asked) == count
    families = {each.name: each.samples for each in lag_metrics(sampled.seen)}
    assert len(families["quorate_group_lag_records"]) == SERIES_MAX
    assert len(families["quorate_group_lag_seconds"]) == SERIES_MAX
    assert [each.value for each in families["quorate_group_lag_left_out"]] == [50]
    shown = [each.value for each in families["quorate_group_lag_records"]]
    total = sum(10 - each % 7 for each in range(count))
    assert [each.value for each in families["quorate_group_sum_lag_records"]] == [total]
    assert shown == sorted(shown, reverse=True), "the largest ones"
    assert min(shown) >= 10 - 6


@pytest.mark.parametrize(("tick_ms", "pause_ms"), [(1, 5_000), (300, 11_400), (1_000, 15_000)])
async def test_the_pause_is_a_multiple_of_the_round_within_bounds(tick_ms: int, pause_ms: int) -> None:
    sampled = sampler(view_of([1]), [slot("billing", 1)], {1: Leader(10)}, tick_ms)
    # The clock is looked at three times.
    assert await sampled.sample() == pause_ms


async def test_a_broker_that_is_not_the_coordinator_asks_nobody_and_knows_nothing() -> None:
    leader = Leader(10)
    slots: list[list[GroupSlot] | None] = [[slot("billing", 1)], None]
    sampled = sampler(view_of([1]), [], {1: leader})
    sampled._slots = lambda: slots.pop(0)
    await sampled.sample()
    assert sampled.seen.groups
    assert await sampled.sample() == lag.IDLE_INTERVAL_MS
    assert sampled.seen == LagsSeen()
    assert (leader.closed, leader.asked) == (True, [1])


async def test_a_leader_keeps_its_connection_until_it_leads_nothing() -> None:
    leader, view, slots = Leader(10), view_of([1]), [slot("billing", 1)]
    sampled = sampler(view, slots, {1: leader})
    await sampled.sample()
    await sampled.sample()
    assert (leader.asked, leader.closed) == ([1, 1], False)
    slots.clear()
    await sampled.sample()
    assert leader.closed
    assert sampled.seen.groups == {}
