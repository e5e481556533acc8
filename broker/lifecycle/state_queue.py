"""The broker's end of its queue of state changes: reads entries, has them applied in order, deletes them.

A deleted entry is an applied one: that is the acknowledgement. Entries of other generations are skipped; the
controller removes them. An entry that no holder of the peer secret signed for this queue is deleted and
counted, never looked into. Only a broker whose channel is "queue" reads it, and says so in its registration;
the same fences judge requests that come either way. Hard state is the queue.
Source: docs/internals/requirements.md, [0.B], [0.E], [0.disc2]; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from controller.messages.entities import (
    CONTROL_VERSIONS,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlledShutdownRequest,
    ControllerRequest,
    ControlResponse,
    decode_request,
    partition_codes,
)
from controller.wire.codes import ErrorCode, code_name
from controller.wire.decoding import MalformedMessageError
from quorum.client import (
    Client,
    ClientState,
    ConnectionLossError,
    NoNodeError,
    ServerError,
    WatchEvent,
)
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER, MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.broker.queue")

#: Entries that are read at a time; each is below a mebibyte.
READ_CHUNK: Final = 30
#: Pause before the queue is read again after an error that is not the connection's; it doubles each time.
PAUSE_MIN_S: Final = 0.2
PAUSE_MAX_S: Final = 10.0

_API_KEYS: Final = {
    ChangeKind.LEADER_AND_ISR: LEADER_AND_ISR,
    ChangeKind.STOP_REPLICA: STOP_REPLICA,
    ChangeKind.UPDATE_METADATA: UPDATE_METADATA,
}
#: What ends an entry: it was applied, or comes from a former controller and never will be.
_DONE: Final = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)

#: Applies a request.
Apply = Callable[[ControllerRequest], Awaitable[ControlResponse]]


class StateQueue:
    """Reads the queue of one broker, one session after the other."""

    def __init__(self, broker_id: int, apply: Apply, trust: Trust) -> None:
        """Watch nothing yet."""
        self._trust = trust
        #: Entries of strangers that were deleted.
        self.strangers = 0
        self._path = paths.queue_path(broker_id)
        self._broker_id = broker_id
        self._apply = apply
        self._watched: Client | None = None
        self._due = asyncio.Event()

    async def watch(self, client: Client) -> None:
        """Watch the queue through a session; before the states are read, so that no change is missed."""
        if client is not self._watched:
            # A new connection may have missed events; a session that is over ends run().
            client.add_listener(self._changed)
            await client.add_watch(self._path, self._changed)
            self._watched = client

    async def run(self, client: Client, generation: BrokerGeneration) -> None:
        """Apply what comes for a generation, until the session is over."""
        self._due.set()
        pause_s = PAUSE_MIN_S
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                while await self._take_all(client, generation):
                    pause_s = PAUSE_MIN_S
            except ConnectionLossError as error:
                # The next connection sets _due.
                log.info("broker %d could not read its queue: %s", self._broker_id, error.message)
            except SESSION_OVER:
                return
            except QuorateError as error:
                log.warning("broker %d does not get on with its queue: %s", self._broker_id, error)
                self._due.set()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _changed(self, _change: WatchEvent | ClientState) -> None:
        self._due.set()

    async def _take_all(self, client: Client, generation: BrokerGeneration) -> bool:
        """Apply what stands there, in order, and delete it; returns whether more may have come."""
        try:
            names = sorted(await client.get_children(self._path))
        except NoNodeError:
            return False
        is_moving = False
        for start in range(0, len(names), READ_CHUNK):
            entries = [f"{self._path}/{name}" for name in names[start : start + READ_CHUNK]]
            done = [
                path
                for path, outcome in zip(entries, await client.read_all(entries), strict=True)
                # What cannot be read was removed by the controller.
                if not isinstance(outcome, ServerError) and await self._is_done(path, outcome[0], generation)
            ]
            await asyncio.gather(*(_delete(client, path) for path in done))
            is_moving = is_moving or bool(done)
        return is_moving

    async def _is_done(self, path: str, data: bytes | None, generation: BrokerGeneration) -> bool:
        """Apply an entry; returns whether it must go."""
        if not self._trust.is_signed(self._path, data):
            self.strangers += 1
            if self.strangers == 1:
                log.warning(
                    "broker %d deletes an entry of a stranger from its queue: %s", self._broker_id, path
                )
            return True
        try:
            entry = QueueEntryRecord.decode(path, data)
            if entry.generation != generation:
                return False
            api_key = _API_KEYS[entry.kind]
            request = decode_request(api_key, CONTROL_VERSIONS[api_key], entry.request)
        except (MetadataDecodeError, MalformedMessageError) as error:
            log.warning("broker %d removes a malformed entry from its queue: %s", self._broker_id, error)
            return True
        assert not isinstance(request, ControlledShutdownRequest)
        answer = await self._apply(request)
        code = answer.error_code
        if refused := [each for each in partition_codes(answer) if each != ErrorCode.NONE]:
            # Nobody else hears of it.
            text = "%d partitions refused an entry, the first with %s"
            log.warning(text, len(refused), code_name(refused[0]))
        if code != ErrorCode.NONE:
            log.warning("broker %d refused %s: %s", self._broker_id, path, code_name(code))
        return code in _DONE


async def _delete(client: Client, path: str) -> None:
    try:
        await client.delete(path)
    except NoNodeError:
        return
