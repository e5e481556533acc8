"""The last thing that a broker asks of the controller: that others lead what it leads, before it stops.

Asks whichever broker holds /controller, itself included, on its broker listener. A request that names a
generation which is over (77) is made again with the new one, after the pause of Kafka's setting; so is one
that leaves partitions behind for which another replica is not in sync yet. A controller that is gone is
waited for; a quorum that is gone only for QUORUM_PATIENCE_S, as it may be stopping, too. Where nothing of
this helps in time, the broker stops uncleanly: then the controller finds out by the end of its session.
Source: ARCHITECTURE.md, "Life of a broker failure"; KIP-380; Kafka's controlled.shutdown.* (3.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.lifecycle.parts import BrokerParts
from broker.lifecycle.session import BrokerSession
from controller.core.brokers import broker_endpoint
from controller.messages.entities import (
    CONTROL_VERSIONS,
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    decode_response,
    encode_request,
)
from controller.wire.codes import ErrorCode, code_name
from controller.wire.connection import BrokerConnection, BrokerUnreachableError, while_current
from quorum.client import Client, ClientState, NoNodeError
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.records import NO_CONTROLLER, BrokerRecord, ControllerRecord

log = logging.getLogger("quorate.broker")

#: How long a quorum without a connection is waited for.
QUORUM_PATIENCE_S: Final = 2.0
#: Of what only the next attempt makes better; none of it is shown.
_REMEDY: Final = "ask again"
#: Answers that only another controller makes better: no pause is counted for them.
_SEARCHING: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE)


class Departure:
    """The requests of one broker that stops."""

    def __init__(self, parts: BrokerParts, session: Callable[[], BrokerSession | None]) -> None:
        """Ask nothing yet; session returns the present session, if there is any."""
        self._parts = parts
        self._session = session
        self._changed = asyncio.Event()

    async def run(self) -> bool:
        """Ask until nothing is left to move, or it is too late; returns whether nothing is left."""
        settings, loop = self._parts.config.broker, asyncio.get_running_loop()
        retries_max = settings.controlled_shutdown_max_retries
        patience_s = retries_max * settings.controlled_shutdown_retry_backoff_ms / 1000
        deadline = loop.time() + patience_s
        retries, problem, heard_s = 0, "", loop.time()
        while True:
            self._changed.clear()
            if self._is_connected():
                heard_s = loop.time()
            elif loop.time() - heard_s >= QUORUM_PATIENCE_S:
                log.warning("broker %d stops uncleanly: the quorum cannot be reached", settings.id)
                return False
            try:
                async with asyncio.timeout(settings.control_request_timeout_ms / 1000):
                    response = await while_current(self._ask(), lambda: not self._changed.is_set())
            except (QuorateError, TimeoutError) as error:
                problem = error.message if isinstance(error, QuorateError) else "no answer in time"
            else:
                problem = _problem_of(response)
                if not problem:
                    return True
                if response.error_code not in _SEARCHING:
                    retries += 1
            if retries > retries_max or loop.time() >= deadline:
                log.warning("broker %d stops uncleanly: %s", settings.id, problem)
                return False
            log.info("broker %d asks again for its controlled shutdown: %s", settings.id, problem)
            await self._pause(retries > 0)

    def _is_connected(self) -> bool:
        session = self._session()
        return session is not None and session.client.state is ClientState.CONNECTED

    async def _pause(self, is_counted: bool) -> None:
        """Wait for the backoff; a new controller ends the wait for one."""
        try:
            pause_s = self._parts.config.broker.controlled_shutdown_retry_backoff_ms / 1000
            async with asyncio.timeout(pause_s if self._is_connected() else QUORUM_PATIENCE_S):
                while True:
                    await self._changed.wait()
                    if not is_counted:
                        return
                    self._changed.clear()
        except TimeoutError:
            return

    async def _ask(self) -> ControlledShutdownResponse:
        session = self._session()
        registration = None if session is None else session.registration
        if session is None or registration is None:
            raise BrokerUnreachableError("it has no session with the quorum", _REMEDY)
        parts, broker = self._parts, self._parts.config.broker
        async with asyncio.timeout(QUORUM_PATIENCE_S):
            host, port = await self._find_controller(session.client)
        connection = await BrokerConnection.open(
            host,
            port,
            secrets=parts.secrets,
            cluster_id=parts.cluster_id,
            client_id=f"broker-{broker.id}",
            timeout_ms=broker.control_request_timeout_ms,
            tls=parts.tls,
        )
        try:
            body = await connection.request(
                CONTROLLED_SHUTDOWN,
                CONTROL_VERSIONS[CONTROLLED_SHUTDOWN],
                encode_request(
                    ControlledShutdownRequest(broker_id=broker.id, broker_epoch=registration.generation)
                ),
                flexible=True,
                timeout_ms=broker.control_request_timeout_ms,
            )
        finally:
            connection.close()
        response = decode_response(CONTROLLED_SHUTDOWN, CONTROL_VERSIONS[CONTROLLED_SHUTDOWN], body)
        assert isinstance(response, ControlledShutdownResponse)
        return response

    async def _find_controller(self, client: Client) -> tuple[str, int]:
        await client.exists(paths.CONTROLLER, lambda _event: self._changed.set())
        try:
            value, _ = await client.get(paths.CONTROLLER)
            controller_id = ControllerRecord.decode(value).broker_id
            if controller_id == NO_CONTROLLER:
                raise BrokerUnreachableError("there is no controller", _REMEDY)
            if controller_id in self._parts.config.dial:
                return self._parts.config.dial[controller_id]
            path = paths.broker_id_path(controller_id)
            registration, stat = await client.get(path)
            self._parts.trust.check_signed(path, registration, stat.ephemeral_owner)
            endpoint = broker_endpoint(BrokerRecord.decode(controller_id, registration))
        except NoNodeError:
            raise BrokerUnreachableError("there is no controller", _REMEDY) from None
        if endpoint is None:
            raise BrokerUnreachableError(f"broker {controller_id} names no broker listener", _REMEDY)
        return endpoint.host, endpoint.port


def _problem_of(response: ControlledShutdownResponse) -> str:
    """Say what is not as it should be; "" if the broker may stop."""
    if response.error_code != ErrorCode.NONE:
        return f"the controller answered {code_name(response.error_code)}"
    left = len(response.remaining_partitions)
    return f"it still leads {left} partitions whose other replicas are not in sync" if left else ""
