"""Whatever a request says within its schema, a broker answers it, and goes on.

Requests are made by the schema of every version that is served, and carried out by a real broker with its
controller and its coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.local import BlockingBrokers, brokers_in_thread
from broker.server.table import CLIENT_LISTENER
from broker.wire.apis import ApiKey
from broker.wire.codec import request_type
from tests.support.broker_wire import BrokerLink, ask
from tests.support.kio_samples import encoded
from tests.support.wire_values import WireValues

#: An answer that does not come by then waits for something that a test need not see.
PATIENCE_S = 0.2
EXAMPLES = 25
#: The connection itself answers it.
BY_THE_CONNECTION = {ApiKey.API_VERSIONS}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(1) as running:
        yield running


@pytest.fixture(scope="module")
def values(cluster: BlockingBrokers) -> WireValues:
    new = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    found = ask(
        cluster.bootstrap,
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": [new], "timeout": 10_000, "validate_only": False},
    )
    assert found.topics[0].error_code == 0
    return WireValues(
        ("t", "g", "1"), (found.topics[0].topic_id,), ("retention.ms", "5", "delete", "consumer")
    )


def ends_the_connection(message: Any) -> bool:
    """Whether a request is one of the few that a broker has no answer to."""
    # A producer that wants no answer learns of an error by the end of its connection.
    return getattr(message, "acks", None) == 0


@pytest.mark.parametrize(
    "api_key", sorted(set(CLIENT_LISTENER) - BY_THE_CONNECTION), ids=lambda key: ApiKey(key).name
)
def test_every_value_of_the_schema_is_answered(
    cluster: BlockingBrokers, values: WireValues, api_key: int, caplog: pytest.LogCaptureFixture
) -> None:
    versions = CLIENT_LISTENER[api_key].versions
    links: list[BrokerLink] = []

    @settings(
        max_examples=EXAMPLES * (versions.high + 1 - versions.low),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(versions.low, versions.high))
        message = data.draw(values.of(request_type(api_key, version)))
        if ends_the_connection(message):
            return
        if not links:
            links.append(BrokerLink(cluster.bootstrap, PATIENCE_S))
        try:
            links[-1].send(api_key, version, encoded(message))
            links[-1].answer(api_key, version)
        except TimeoutError:
            links.pop().close()
        except ConnectionError:
            links.pop().close()
            pytest.fail(caplog.text)

    check()
    for link in links:
        link.close()
    broker = cluster._running._running[1]
    assert broker.controller is not None and broker.controller.active
