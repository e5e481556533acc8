"""The shipped controller in a simulated broker: its candidate, its shell and its machine run unchanged.

Only the way to other brokers is another one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.core.model import LiveBroker
from controller.core.options import ControllerOptions
from controller.runtime.controller import Controller
from quorum.metadata.topic_settings import TopicSettings
from quorum.metadata.trust import Trust
from tests.simulation.control_plane.client import SimClient
from tests.simulation.control_plane.network import ControlConnection, Serve

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.world import World

CLUSTER_ID: Final = "simulated"
SECRETS: Final = ("secret",)
TRUST: Final = Trust(SECRETS, CLUSTER_ID)
OPTIONS: Final = ControllerOptions(
    control_request_timeout_ms=600,
    settle_ms=200,
    shutdown_settle_ms=200,
    broker_event_ms=500,
    leader_imbalance_check_interval_ms=4000,
    segment_bytes_min=1,
)


class HostedController(Controller):
    """One candidate."""

    def __init__(self, world: World, broker: SimBroker, client: SimClient, rng: random.Random) -> None:
        """Compete by a client of a broker."""
        super().__init__(
            client.shipped,
            broker.broker_id,
            options=replace(OPTIONS, channel="queue") if broker.reads_queue else OPTIONS,
            secrets=SECRETS,
            cluster_id=CLUSTER_ID,
            default_settings=TopicSettings(),
            dial={},
            rng=rng,
            recordings=world.recordings,
        )
        self._world = world
        self._broker = broker

    async def _connect(self, broker_id: int, broker: LiveBroker) -> ControlConnection:  # type: ignore[override]  # noqa: ARG002
        def serve() -> Serve | None:
            other = self._world.brokers.get(broker_id)
            return None if other is None else other.control.take

        return ControlConnection(self._world.network, self._broker.process, broker_id, serve)
