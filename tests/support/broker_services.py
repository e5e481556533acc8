"""The parts of a broker for its handlers, those that a test needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from broker.core.cluster_view import ClusterView
from broker.server.services import BrokerServices

CLUSTER_ID = "cluster-of-a-test"


def services(view: ClusterView, **parts: object) -> BrokerServices:
    """Return the services of broker 1: its view, and parts or what has their shape; the others are absent."""
    absent = dict.fromkeys(("replicas", "topic_configs", "broker_configs", "producer_ids", "config"))
    given: dict[str, Any] = {"controller": lambda: None, **absent, **parts}
    return BrokerServices(1, CLUSTER_ID, view=view, **given)


def in_every_part(fake: object) -> Any:
    """Return replicas whose parts are all one fake."""
    names = ("control", "producing", "fetching", "deleting", "logs")
    return cast("Any", SimpleNamespace(**dict.fromkeys(names, fake)))
