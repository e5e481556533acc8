"""What only a Kafka client learns: where logs end, and which settings of topics are in force.

Decides which listener is asked: the clients' one, by TLS where the command line says whom to believe, and by
SASL where it says who asks. No state.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

from broker.health.lag import LagHistory, known_offsets
from quorum.config.logins import FileLogin
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey
from quorum.platform.tls import DIALLING

#: of one call, and of all that is asked
TIMEOUT_MS: Final = 3_000
KAFKA_TIMEOUT_S: Final = 5.0
#: names of topics in one request
_TOPICS_MAX: Final = 500
_LATEST: Final = -1
#: what a client is told of a topic that it may not see: that it is unknown, or that it is refused
_HIDDEN: Final = (3, 29)
#: {(by TLS, by SASL): what the listener for clients is called in registrations}
_LISTENERS: Final = {
    (False, False): "CLIENT",
    (True, False): "SSL",
    (False, True): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}

#: {group: {partition: what it has committed}}
Committed = Mapping[str, Mapping[PartitionKey, int]]


def _listener(login: FileLogin | None) -> str:
    return _LISTENERS[DIALLING.get() is not None, login is not None]


def bootstrap_of(rows: Iterable[Mapping[str, Any]], login: FileLogin | None = None) -> str:
    """Return the listeners for clients of registered brokers as "host:port,…", in their order."""
    wanted = _listener(login)
    found = []
    for row in rows:
        for endpoint in row.get("endpoints", ()):
            listener, _, address = str(endpoint).partition("://")
            if listener == wanted and address:
                found.append(address)
    return ",".join(found)


async def ask_kafka(
    bootstrap: str,
    topics: Collection[str],
    committed: Committed | str,
    login: FileLogin | None = None,
    mechanism: str = "",
) -> tuple[dict[str, int] | str, dict[str, int] | str]:
    """Ask brokers.

    Args:
        bootstrap: "host:port,…"; "": no listener is known.
        topics: names.
        committed: what groups have committed; a str says why that is not known.
        login, mechanism: what is proved, and how; None: nothing.

    Returns:
        {topic: min.insync.replicas in force}, and {group: records that it is behind}; or why not, each.
    """
    if not bootstrap:
        problem = f"no registered broker has a listener {_listener(login)}; name one with --bootstrap"
        return problem, problem
    if importlib.util.find_spec("kio") is None:
        problem = "the extra `brokers` is not installed"
        return problem, problem
    from broker.client import BrokerClient  # noqa: PLC0415  # not without the extra
    from broker.client.proofs import BrokerProof  # noqa: PLC0415

    sasl = None if login is None else BrokerProof(login, mechanism)
    asker = "a client that proves nothing" if login is None else f"user {login.name}"

    def client() -> BrokerClient:
        return BrokerClient(bootstrap, timeout_ms=TIMEOUT_MS, tls=DIALLING.get(), sasl=sasl)

    return await asyncio.gather(
        _told(client(), "settings of topics", lambda client: _min_isr(client, list(topics))),
        _told(client(), "where logs end", lambda client: _lags(client, committed, asker)),
    )


async def _told(
    client: Any, what: str, ask: Callable[[Any], Awaitable[dict[str, int] | str]]
) -> dict[str, int] | str:
    """Return what brokers tell in time, or why they do not; with connections of its own."""
    try:
        async with asyncio.timeout(KAFKA_TIMEOUT_S), client:
            return await ask(client)
    except TimeoutError:
        return f"brokers did not tell {what} within {KAFKA_TIMEOUT_S:g} s"
    except QuorateError as error:
        return f"brokers do not tell {what}: {error.message}"


async def _min_isr(client: Any, topics: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for first in range(0, len(topics), _TOPICS_MAX):
        rows = await client.describe_topic_configs(topics[first : first + _TOPICS_MAX])
        for topic, settings in rows.items():
            for each in settings:
                if each.name == "min.insync.replicas" and each.value is not None:
                    found[topic] = int(each.value)
    return found


async def _lags(client: Any, committed: Committed | str, asker: str) -> dict[str, int] | str:
    if isinstance(committed, str):
        return committed
    keys = sorted({key for offsets in committed.values() for key in offsets})
    ends = await client.list_offsets(dict.fromkeys(keys, _LATEST)) if keys else {}
    hidden = sorted({key.topic for key in keys if ends[key].error_code in _HIDDEN})
    if hidden:
        return f"brokers do not show topic {hidden[0]} to {asker}"
    lags = LagHistory().take(0, committed, known_offsets(ends))
    return {group: lag.records for group, lag in lags.items()}
