"""Records what a node applies: the change log's side in the node's event loop.

Decides when blocks go to the files (soon, and in one write together), what waits at most, and which readers
wait for more. It packs an entry's trace right after the entry was applied, so nothing of the old state is
kept; the disk is a lane's. If the disk falls behind by PENDING_BYTES_MAX, applying waits for it. Soft state
only.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgpack

from quorum.changelog.blocks import Block, BlockBody
from quorum.changelog.files import ChangeFiles
from quorum.changelog.past import Visitor, visit_changes
from quorum.changelog.rows import CONTROLLER_EPOCH_PATH, UNRECORDED, epoch_of, render
from quorum.changelog.rows import ChangelogRow as ChangelogRow  # noqa: PLC0414 - what readers are given
from quorum.core.machine import StateMachine
from quorum.core.tree import Node, record_of
from quorum.platform.runtime import Runtime

log = logging.getLogger("quorate.changelog")

_CONTROLLER_EPOCH_NAME: Final = CONTROLLER_EPOCH_PATH.removeprefix("/")
#: the lane that writes
CHANGELOG_LANE: Final = "changelog"
#: how long a block waits for others, and while a reader waits for it: each write wakes a thread
DRAIN_AFTER_MS: Final = 50.0
DRAIN_SOON_MS: Final = 5.0
#: how long after a refusal of the disk it is asked again
RETRY_AFTER_MS: Final = 500.0
#: what may wait for the disk; past it applying waits
PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
#: answers that are rendered at once; the others wait, so that readers never take many threads
READS_MAX: Final = 2
#: passes over the past at once; they are long, so that they have a place of their own
PASSES_MAX: Final = 1


class ChangeRecorder:
    """The change log of one node."""

    def __init__(
        self,
        files: ChangeFiles,
        runtime: Runtime,
        machine: StateMachine,
        fail: Callable[[BaseException], None],
    ) -> None:
        """Open the files for a state before anything is applied to it.

        Args:
            files: not yet open.
            runtime: loop and lanes.
            machine: the state, as loaded from a snapshot, or empty.
            fail: stops the node with what must not happen.
        """
        self._files = files
        self._runtime = runtime
        self._fail = fail
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
        self._queued_bytes = 0
        #: whether a drain is asked for or under way
        self._draining = False
        self._stopped = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._reads = asyncio.Semaphore(READS_MAX)
        self._passes = asyncio.Semaphore(PASSES_MAX)
        self._adopt(machine)
        files.open(self._zxid)

    @property
    def first_zxid(self) -> int:
        """First zxid that is retained."""
        return self._files.first_zxid

    @property
    def last_zxid(self) -> int:
        """Last zxid that can be read; -1: there is none."""
        return self._files.last_zxid

    @property
    def stopped(self) -> bool:
        """Whether nothing more will come: the node stops."""
        return self._stopped

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is retained."""
        return self._files.size_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for the disk."""
        return self._queued_bytes - self._files.drained_bytes

    # --- what is applied ------------------------------------------------------------------------------

    def _adopt(self, machine: StateMachine) -> None:
        self._machine = machine
        machine.tree.trace = []
        self._zxid = machine.zxid if machine.applied_index else -1
        self._cluster_id = machine.cluster_id
        self._epoch_node: Node | None = None
        self._epoch = 0
        self._controller_epoch = self._epoch_now()

    def _epoch_now(self) -> int:
        """Return the controller epoch; read anew only where the node is another object."""
        node = self._machine.tree.root.children.get(_CONTROLLER_EPOCH_NAME)
        if node is not self._epoch_node or not isinstance(node, bytes):
            self._epoch_node = node
            self._epoch = 0 if node is None else epoch_of(record_of(node))
        return self._epoch

    def entry_applied(self) -> None:
        """Record what the entry that was just applied did."""
        machine = self._machine
        tree, zxid, cluster_id = machine.tree, machine.zxid, machine.cluster_id
        trace = tree.trace
        if self._stopped or (not trace and zxid == self._zxid):
            return
        tree.trace = []
        first_zxid = self._zxid + 1 + machine.transaction.zxid_jump
        if cluster_id != self._cluster_id:
            self._cluster_id = cluster_id
        elif zxid == self._zxid:
            # an attachment of a session alone
            return
        for traced in trace or ():
            if len(traced) == 4 and traced[1].startswith(UNRECORDED):
                trace = [each for each in trace or () if len(each) == 3 or not each[1].startswith(UNRECORDED)]
                break
        body = self._pack(BlockBody(machine.applied_term, self._controller_epoch, cluster_id, trace or ()))
        block = Block(first_zxid, zxid, machine.last_stamp_ms, body)
        self._zxid = zxid
        self._controller_epoch = self._epoch_now()
        self._files.put(block)
        self._queued_bytes += block.size
        if self.pending_bytes > PENDING_BYTES_MAX and not self._files.drain():
            self._files.abandon_queue(self._zxid)
        if not self._draining:
            self._drain_soon(self._drain_delay_ms())

    def installed(self, machine: StateMachine) -> None:
        """A snapshot replaced the state: the log begins anew after it."""
        self._adopt(machine)
        self._files.put(self._zxid)
        self._drain_soon(DRAIN_AFTER_MS)

    def _drain_delay_ms(self) -> float:
        return DRAIN_SOON_MS if self._waiting else DRAIN_AFTER_MS

    def _drain_soon(self, delay_ms: float) -> None:
        if not self._draining and not self._stopped:
            self._draining = True
            self._runtime.call_later(delay_ms, self._drain)

    def _drain(self) -> None:
        if self._stopped:
            return
        last_queued = self._zxid

        def drained(written: bool | None, error: BaseException | None) -> None:
            if error is not None:
                self._fail(error)
                return
            self._draining = False
            self._wake()
            if not written:
                self._drain_soon(RETRY_AFTER_MS)
            elif self._zxid != last_queued:
                self._drain_soon(self._drain_delay_ms())

        self._runtime.run_in_thread(CHANGELOG_LANE, self._files.drain, drained)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def stop(self) -> None:
        """Record and wait no more; the lanes may still write."""
        self._stopped = True
        self._machine.tree.trace = None
        self._wake()

    def close(self) -> None:
        """Write the rest and close the files; after the lanes ended."""
        self._files.close()

    def sync(self) -> None:
        """Make durable what was recorded until now; any thread, blocks."""
        self._files.sync()

    # --- readers ----------------------------------------------------------------------------------------

    async def wait_for(self, zxid: int, wait_ms: int) -> None:
        """Return once a zxid can be read, or after a time."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self.first_zxid <= zxid > self.last_zxid and not self._stopped:
                    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.add(waiting)
                    try:
                        await waiting
                    finally:
                        self._waiting.discard(waiting)
        except TimeoutError:
            return

    async def read(self, from_zxid: int, bytes_max: int, encode: Callable[[ChangelogRow], bytes]) -> bytes:
        """Return encoded records from a zxid on, as `render` does."""

        def work() -> bytes:
            return render(self._files.blocks_from(from_zxid), from_zxid, bytes_max, encode)

        async with self._reads:
            return await asyncio.get_running_loop().run_in_executor(None, work)

    async def visit_changes(self, from_zxid: int, to_zxid: int, visit: Visitor) -> int:
        """Pass over changes, in a thread; arguments and answer are those of `past.visit_changes`."""

        def work() -> int:
            return visit_changes(self._files.blocks_from(from_zxid), from_zxid, to_zxid, visit)

        async with self._passes:
            return await asyncio.get_running_loop().run_in_executor(None, work)
