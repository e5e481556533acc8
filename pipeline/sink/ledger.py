"""What the quorum keeps of a sink: one znode a name, changed by compare-and-set only.

It says which batch is the last, whether all of it is in the topic, where its list of files is, and under
which producer id and epoch it is appended. `decide` is the whole rule of what a commit may do; it is pure.

A run is one start of a query. Runs that another one took the name from are retired: they change nothing and
append nothing more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from broker.client.producing import ProducerLife
from pipeline.sink.errors import SinkFencedError, SinkNameError
from quorum.client import BadVersionError, Client, ConnectionLossError, NodeExistsError, NoNodeError
from quorum.errors import shown

FOLDER: Final = "/quorate/sinks"
#: Runs that are remembered as retired, the latest last.
RETIRED_MAX: Final = 64
#: How often the state is read while connections to the quorum end, and the pause between, in seconds.
READS_MAX: Final = 20
RETRY_PAUSE_S: Final = 0.5
#: The version of a znode that does not exist.
ABSENT: Final = -1


class SinkState(NamedTuple):
    """The content of the znode."""

    query_id: str
    run_id: str
    retired: tuple[str, ...]
    batch_id: int
    producer_id: int
    producer_epoch: int
    #: Of every record of the batch.
    timestamp_ms: int
    rows: int
    #: Where the list of the batch's files is, and its digest.
    manifest: str
    sha256: str
    done: bool

    @property
    def life(self) -> ProducerLife:
        """Who appends the batch: every batch has an epoch of its own, and so fences those before it."""
        return ProducerLife(self.producer_id, self.producer_epoch)

    def taken_over_by(self, run_id: str, others: Sequence[str] = ()) -> SinkState:
        """Return the state in which a run has the name and all others are retired."""
        retired = dict.fromkeys([*self.retired, self.run_id, *others])
        retired.pop(run_id, None)
        return self._replace(run_id=run_id, retired=tuple(retired)[-RETIRED_MAX:])


class LedgerStep(Enum):
    """What a commit has to do."""

    BEGIN = "begin"
    FINISH = "finish"
    NOTHING = "nothing"


def decide(state: SinkState | None, query_id: str, run_id: str, batch_id: int) -> LedgerStep:
    """Return what the commit of a batch has to do."""
    if state is None:
        return LedgerStep.BEGIN
    if run_id in state.retired:
        raise SinkFencedError(
            f"run {run_id} was replaced by run {state.run_id}, which is at batch {state.batch_id}",
            "leave the query to the newer driver",
        )
    if state.query_id != query_id:
        raise SinkNameError(
            f"the name is that of query {state.query_id}, this is query {query_id}",
            "give another quorate.sink; if the checkpoint was dropped on purpose, delete the znode first",
        )
    if batch_id == state.batch_id:
        return LedgerStep.NOTHING if state.done else LedgerStep.FINISH
    if batch_id < state.batch_id:
        raise SinkNameError(
            f"batch {batch_id} comes after batch {state.batch_id}",
            "restore the newest checkpoint; an older one would append rows again",
        )
    if not state.done:
        raise SinkNameError(
            f"batch {batch_id} comes, but batch {state.batch_id} is not done",
            "start the query from the checkpoint that batch belongs to",
        )
    return LedgerStep.BEGIN


class Ledger:
    """The znode of one name."""

    def __init__(self, client: Client, name: str) -> None:
        """Use a started client."""
        self._client = client
        self.path = f"{FOLDER}/{name}"

    async def read(self) -> tuple[SinkState | None, int]:
        """Return the newest state and the znode's version; a name that nobody used has version ABSENT."""
        for attempt in range(1, READS_MAX + 1):
            try:
                await self._client.sync(FOLDER)
                data, stat = await self._client.get(self.path)
            except NoNodeError:
                return None, ABSENT
            except ConnectionLossError:
                if attempt == READS_MAX:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                break
        return _decode(self.path, data or b""), stat.version

    async def swap(self, state: SinkState, version: int) -> int | None:
        """Write a state if the znode still has a version.

        Returns:
            The new version; None: another process changed it, or it cannot be known. Read again.
        """
        content = json.dumps(state._asdict()).encode()
        try:
            if version == ABSENT:
                await self._ensure_folder()
                await self._client.create(self.path, content)
                return 0
            return (await self._client.set(self.path, content, version)).version
        except (BadVersionError, NodeExistsError, ConnectionLossError):
            return None

    async def _ensure_folder(self) -> None:
        for path in ("/quorate", FOLDER):
            try:
                await self._client.create(path)
            except NodeExistsError:
                continue


def _decode(path: str, data: bytes) -> SinkState:
    try:
        values = json.loads(data)
        return SinkState(**{**values, "retired": tuple(values["retired"])})
    except (ValueError, TypeError, KeyError) as error:
        raise SinkNameError(
            f"the znode {shown(path)} holds something else than a sink's state: {error}",
            "give another quorate.sink, or delete the znode",
        ) from error
