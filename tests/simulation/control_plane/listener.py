"""What a simulated broker serves of transactions: the shipped produce, markers and verification.

Requests of transactional producers come as calls; those of other brokers (WriteTxnMarkers and
AddPartitionsToTxn) in their bytes, over connections that are lost as others are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from broker.core.transactions.deciding import TransactionOptions
from broker.groups.transactions import TransactionGround
from broker.replication.outcomes import Counters
from broker.replication.producing import Producing
from broker.replication.verifying import Verifier
from broker.server.api.transactions import add_partitions_to_txn
from broker.server.api.txn_markers import write_txn_markers
from broker.server.requests import Call, Handler
from broker.wire.codec import decode_request, encode_response
from controller.core.brokers import CLIENT_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.connection import BrokerConnection
from quorum.errors import QuorateError
from tests.simulation.control_plane.network import ControlConnection, Serve

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker

#: When a connection that brings no answer is given up: a lost message is that of a lost connection here.
ANSWER_MS: Final = 700
#: {request of another broker: its version and who answers it}
_SERVED: Final[dict[int, tuple[int, Handler]]] = {
    ApiKey.WRITE_TXN_MARKERS: (1, write_txn_markers),
    ApiKey.ADD_PARTITIONS_TO_TXN: (4, add_partitions_to_txn),
}


class PeerConnection(ControlConnection):
    """A broker's connection to another one, whose requests keep their own order only."""

    async def request(
        self, api_key: int, api_version: int, body: bytes, *, flexible: bool, timeout_ms: int
    ) -> bytes:
        patience_ms = min(timeout_ms, ANSWER_MS)
        return await super().request(api_key, api_version, body, flexible=flexible, timeout_ms=patience_ms)

    def _stream(self) -> Hashable:
        return self


class Listener:
    """Of one broker's life."""

    def __init__(self, broker: SimBroker) -> None:
        """Serve nothing yet."""
        self._broker = broker
        self._verifier = Verifier(self._connect, is_on=True)
        self._verifier.attach(self._coordinator_id)
        # What they touch of a registry and of the ids that were given, a simulated broker has, too.
        registry, producer_ids = cast("Any", broker), cast("Any", SimpleNamespace(given_end=2**62))
        self.producing = Producing(registry, Counters(), producer_ids, self._verifier, self._broke)
        self.ground = TransactionGround(TransactionOptions(), self._next_producer_id, self._connect)
        self._services = cast(
            "Any",
            SimpleNamespace(
                view=broker.view,
                replicas=SimpleNamespace(producing=self.producing),
                groups=lambda: broker.coordinator,
            ),
        )

    def take(self, number: int, api_key: int, body: bytes, reply: Callable[[bytes], object]) -> None:  # noqa: ARG002
        """Take a request of another broker."""
        self._broker.process.spawn(self._serve(api_key, body, reply))

    async def _serve(self, api_key: int, body: bytes, reply: Callable[[bytes], object]) -> None:
        version, handler = _SERVED[api_key]
        request = cast("Any", SimpleNamespace(api_version=version))
        call = Call(request, decode_request(api_key, version, body), True, (), CLIENT_LISTENER)
        reply(encode_response(api_key, version, await cast("Any", handler)(self._services, call)))

    def _broke(self, error: QuorateError) -> None:
        self._broker.process.on_problem(error)

    def _coordinator_id(self) -> int | None:
        candidate = self._broker.coordinator
        return None if candidate is None else candidate.holder_id

    async def _next_producer_id(self) -> int:
        return self._broker.world.transactions.next_producer_id()

    async def _connect(self, broker_id: int) -> BrokerConnection:
        world = self._broker.world

        def serve() -> Serve | None:
            other = world.brokers.get(broker_id)
            return None if other is None else other.listener.take

        made = PeerConnection(world.network, self._broker.process, broker_id, serve)
        return cast("BrokerConnection", made)
