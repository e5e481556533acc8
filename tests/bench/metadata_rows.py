"""What a broker's answer about all topics costs: encoded anew, cold, and with each topic's row kept.

Inside one broker, from the request's bytes to those of the answer, without sockets; CPU times, never
asserted. All three ways must give the same bytes.
Source: ARCHITECTURE.md, "Life of a record"; docs/internals/benchmarks.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from broker.core.cluster_view import ClusterView
from broker.server.api.metadata import partition_row
from broker.server.handlers import ApiHandlers
from broker.server.requests import Request
from broker.wire.codec import LongResponse, encode_request, encode_response
from controller.messages.entities import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from controller.wire.apis import ApiKey
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from tests.bench.cases import Row
from tests.support.broker_services import CLUSTER_ID, services
from tests.support.broker_wire import whole

TOPIC_PARTITIONS: Final = 100
BROKERS: Final = (1, 2, 3)
VERSION: Final = 12


class _Configured:
    auto_create_topics = False

    @property
    def broker(self) -> _Configured:
        return self


def rows_of(partitions: int) -> tuple[Row, Row, Row]:
    """The lines: encoded anew by the general encoder, cold, kept."""
    case = f"Metadata of {partitions:,} partitions, CPU"
    return (
        Row(f"{case}: every row encoded anew", "ms", compared=False),
        Row(f"{case}: cold, rows are kept", "ms", compared=False),
        Row(f"{case}: from kept rows", "ms", compared=False),
    )


def measure(partitions: int, rounds: int) -> dict[str, list[float]]:
    """Measure the lines in turns; returns {name of the row: one value per round}."""
    view = _view(partitions)

    def cold() -> bytes:
        view.rows.clear()
        return _answer(view)

    ways: list[Callable[[], bytes]] = [lambda: _anew(view), cold, lambda: _answer(view)]
    expected = _anew(view)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for row, way in zip(rows_of(partitions), ways, strict=True):
            began_s = time.process_time()
            answer = way()
            found.setdefault(row.name, []).append((time.process_time() - began_s) * 1000)
            assert answer == expected, row.name
    return found


def _view(partitions: int) -> ClusterView:
    def topic(number: int) -> UpdateMetadataTopicState:
        states = (_partition(index) for index in range(min(TOPIC_PARTITIONS, partitions - number)))
        name = f"topic-{number}"
        return UpdateMetadataTopicState(
            topic_name=name, topic_id=uuid.uuid5(uuid.NAMESPACE_OID, name), partition_states=tuple(states)
        )

    def live(number: int) -> UpdateMetadataBroker:
        endpoint = UpdateMetadataEndpoint(port=9092, host="127.0.0.1", listener="CLIENT", security_protocol=0)
        return UpdateMetadataBroker(id=number, endpoints=(endpoint,), rack=None)

    view = ClusterView()
    view.apply(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=ControllerEpoch(1),
            broker_epoch=BrokerGeneration(1),
            topic_states=tuple(topic(number) for number in range(0, partitions, TOPIC_PARTITIONS)),
            live_brokers=tuple(live(number) for number in BROKERS),
        )
    )
    return view


def _partition(index: int) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=ControllerEpoch(1),
        leader=BROKERS[index % len(BROKERS)],
        leader_epoch=LeaderEpoch(0),
        isr=BROKERS,
        zk_version=PartitionVersion(0),
        replicas=BROKERS,
    )


def _answer(view: ClusterView) -> bytes:
    """Ask the broker's handler for all topics."""
    values = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    body = memoryview(encode_request(ApiKey.METADATA, VERSION, values))
    request = Request(ApiKey.METADATA, VERSION, 1, "bench", body, len(body), 0.0)
    answer = ApiHandlers(services(view, config=_Configured()), for_brokers=False).handle(request)
    assert isinstance(answer, Awaitable)
    steps = answer.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return whole(cast("LongResponse", end.value))
    raise AssertionError("the answer waits")


def _anew(view: ClusterView) -> bytes:
    """Encode the answer without kept rows, as it was before there were any."""
    topics: list[dict[str, Any]] = [
        {
            "error_code": 0,
            "name": name,
            "topic_id": topic.topic_id,
            "partitions": [
                partition_row(view.brokers, index, each)._asdict()
                for index, each in sorted(topic.partitions.items())
            ],
        }
        for name, topic in view.topics.items()
    ]
    brokers = [{"node_id": each, "host": "127.0.0.1", "port": 9092, "rack": None} for each in BROKERS]
    values = {"brokers": brokers, "cluster_id": CLUSTER_ID, "controller_id": 1, "topics": topics}
    return encode_response(ApiKey.METADATA, VERSION, values)
