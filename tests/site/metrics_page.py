"""docs/reference/metrics.md: every metric of a node and of a broker, as running ones show them.

A broker that is controller and coordinator shows all that any broker shows. Values are not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final
from unittest import mock
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

from broker.local import brokers
from quorum.local import ensemble
from quorum.local.embedded import Settings
from tests.site.tables import NOTE, anchored, cell, joined, sentence, table
from tests.support.controlled_cluster import until_read

_AUDITED: Final[Settings] = {"audit": {"enable": True}}
_BROKER: Final[Settings] = {**_AUDITED, "broker": {"channel": "queue"}}
#: What the controller and what the coordinator shows.
_OF_OFFICES: Final = frozenset({"quorate_controller_partitions", "quorate_group_lag_left_out"})
#: (what a name begins with, its heading), of what the holder of an office shows
_OFFICES: Final = (
    ("quorate_controller_", "The controller"),
    *((f"quorate_{name}", "The coordinator of groups") for name in ("coordinator_", "group", "transaction")),
)
_UNITS: Final = ("seconds", "bytes", "ratio")

_HEAD: Final = f"""# Metrics

What Prometheus reads at `/metrics` of the admin port of a node and of a broker. {NOTE}

- A histogram has the series `_bucket`, `_sum` and `_count`.
- `deploy/observability` has dashboards and alert rules; [HTTP](../operate/observe.md) says more of them.
- Metrics of the controller and of the coordinator are shown by the broker that holds that office.
- `quorate_audit_…` is there where the audit log is on, `quorate_broker_queue_strangers_total` where
  `broker.channel` is `queue`.
"""


def _families(url: str) -> list[Metric]:
    """Return the families behind the page of a server of this process."""
    found: list[Metric] = []

    def render(registry: CollectorRegistry) -> bytes:
        found[:] = registry.collect()
        return generate_latest(registry)

    with mock.patch("quorum.admin.metrics.generate_latest", render), urlopen(f"{url}/metrics") as answer:
        answer.read()
    return found


async def _of_a_node() -> list[Metric]:
    async with ensemble(1, _AUDITED) as running:
        return await asyncio.to_thread(_families, running.admin_urls[0])


async def _of_a_broker() -> list[Metric]:
    """Return the families of a broker that holds both offices."""
    async with brokers(1, settings=_BROKER) as running:
        return await until_read(
            lambda: asyncio.to_thread(_families, running.admin_urls[0]),
            lambda found: {each.name for each in found} >= _OF_OFFICES,
        )


def _labels(family: Metric) -> list[str]:
    names = list(getattr(family, "_labelnames", ()))
    return names or (sorted(family.samples[0].labels) if family.type == "info" else [])


def _rows(families: list[Metric]) -> Iterator[tuple[str, ...]]:
    for family in sorted(families, key=lambda each: each.name):
        unit = next((each for each in _UNITS if each in family.name.split("_")[-2:]), "")
        labels = ", ".join(f"`{each}`" for each in _labels(family))
        about = sentence(family.documentation.rstrip("."))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        name += "_info" if family.type == "info" else ""
        yield (anchored(name, name), family.type, labels, unit, cell(about))


def _table(families: list[Metric]) -> str:
    return table(("metric", "type", "labels", "unit", "what it says"), _rows(families))


def page() -> str:
    """Return the page as a node and a broker show their metrics; starts them in this process."""
    node, broker = asyncio.run(_of_a_node()), asyncio.run(_of_a_broker())
    of_nodes, of_brokers = ({each.name for each in found} for found in (node, broker))

    def section(family: Metric) -> str:
        if family.name in of_nodes & of_brokers:
            return "Every process"
        if family.name in of_nodes:
            return "Nodes"
        return next((title for start, title in _OFFICES if family.name.startswith(start)), "Brokers")

    every = {each.name: each for each in (*node, *broker)}.values()
    parts = [_HEAD]
    for title in ("Nodes", "Brokers", *dict.fromkeys(title for _, title in _OFFICES), "Every process"):
        parts += [f"## {title}", _table([each for each in every if section(each) == title])]
    return joined(parts)
