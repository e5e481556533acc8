"""One machine that runs stock pysyncobj: its disk, its current life, and the hooks through which it is seen.

A life is a `SyncObj` of the private copy with a journal, a transport and a clock of this world. The hooks
observe and change nothing. A turn comes every `autoTickPeriod` and at once after a message, as the library's
own thread has it; an error that ends a turn is noted and the next turn comes, as in the library.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, reduce
from typing import Any, Protocol

from tests.simulation.scheduler import Handle, Scheduler
from tests.simulation.stock.disk import FOLDER, StockDisk
from tests.simulation.stock.loader import CLOCK_READ_SECONDS, CLOCK_READS_FREE, StockCopy
from tests.simulation.stock.wires import Letter, StockNetwork, StockTransport
from tests.support.memory_disk import Stopped

JOURNAL = f"{FOLDER}/journal"
DUMP = f"{FOLDER}/dump"
#: a message wakes the node within this
WAKE_MS = 0.1
LEADER = 2
COMPACTION = "compaction of the journal"
#: remark of an acknowledgement
INSTALL_FAILED = "it answers a snapshot that could not be loaded"
_DIGEST_MODULUS = (1 << 61) - 1

Entry = tuple[bytes, int, int]


class Watcher(Protocol):
    """Who is told what a node does."""

    def loaded(self, node: StockNode, entries: list[Entry]) -> None:
        """A life begins with these entries in its journal's file."""

    def added(self, node: StockNode, entry: Entry) -> None:
        """An entry is in the log and in its file."""

    def removing(self, node: StockNode, entries: list[Entry]) -> None:
        """The tail of the log is about to be deleted."""

    def applying(self, node: StockNode, entry: Entry) -> None:
        """An entry is about to be applied."""

    def leads(self, node: StockNode) -> None:
        """The node became leader."""

    def promises(self, node: StockNode, index: int) -> None:
        """The node acknowledges all entries up to an index."""

    def failed(self, node: StockNode, error: Exception) -> None:
        """A turn ended in an error."""

    def look(self, node: StockNode) -> None:
        """An event of the node is over."""


class Settings:
    """How nodes are configured.

    Attributes:
        files: with journal and snapshot on disk; else both in memory.
        library: options of SyncObjConf.
    """

    def __init__(self, *, files: bool, library: dict[str, Any]) -> None:
        self.files = files
        self.library = library


class StockNode:
    """A machine.

    Attributes:
        id: from 1; the library's id of the node as well, so that its hash is the same in every process.
        machine: the life's SyncObj, None while the process is down.
        letter: what the running event delivers, with its sender; None in other events.
        struck: what the process was at when it was killed, as long as no life has read the journal since.
        cleared: this event emptied the log for a snapshot.
    """

    def __init__(
        self,
        node_id: int,
        ids: range,
        copy: StockCopy,
        scheduler: Scheduler,
        network: StockNetwork,
        settings: Settings,
        watcher: Watcher,
    ) -> None:
        self.id = node_id
        self.disk = StockDisk(scheduler.rng(f"disk {node_id}"))
        self.life = 0
        self.machine: Any = None
        self.transport: StockTransport | None = None
        self.letter: tuple[int, Letter] | None = None
        self.struck = ""
        self.cleared = False
        self._ids = ids
        self._copy = copy
        self._scheduler = scheduler
        self._network = network
        self._settings = settings
        self._watcher = watcher
        self._rng = scheduler.rng(f"node {node_id}")
        self._clock = 0.0
        self._reads = 0
        self._next_turn: Handle | None = None
        network.join(self)

    # --- for the copy's outside

    def seconds(self) -> float:
        """Return the node's clock, which goes on while a turn works long."""
        self._reads += 1
        if self._reads > CLOCK_READS_FREE:
            self._clock += CLOCK_READ_SECONDS
        return self._clock

    def random(self) -> float:
        """Return a number from 0 to 1."""
        return self._rng.random()

    # --- lives

    @property
    def ended(self) -> bool:
        """Whether the process ended within a disk call; the library may swallow that, and go on."""
        return self.disk.stopped

    def start(self) -> None:
        """Begin a life, unless one goes on."""
        if self.machine is None:
            self.life += 1
            self.run(self._begin)

    def kill(self) -> None:
        """End the process at once; the disk keeps what was written."""
        if self.machine is None and self.transport is None:
            return
        within = self.disk.struck or "another disk call"
        self.struck = self.struck or (within if self.disk.stopped else "between two events")
        self.disk.kill()
        self.machine = None
        if self.transport is not None:
            transport, self.transport = self.transport, None
            transport.end()
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run code of this node as (part of) one event."""
        self._scheduler.actor = self.id
        self._copy.running = self
        self._clock = max(self._clock, self._scheduler.now_ms / 1000)
        self._reads = 0
        self.cleared = False
        try:
            call(*arguments)
        except Stopped:
            pass
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            if not self.disk.stopped:
                self._watcher.failed(self, error)
        if self.disk.stopped:
            self.kill()
        elif self.machine is not None:
            self._watcher.look(self)
        self.letter = None

    def propose(self, method: str, *arguments: int, callback: Callable[[Any, int], None]) -> None:
        """Call a replicated method."""
        self.run(lambda: getattr(self.machine, method)(*arguments, callback=callback))

    @property
    def is_leader(self) -> bool:
        """Whether this node takes itself for the leader."""
        return self.machine is not None and bool(self.machine._isLeader())

    def _begin(self) -> None:
        peers = {peer: self._copy.node.Node(peer) for peer in self._ids if peer != self.id}
        library = self._copy.transport.Transport(None, None, [])
        self.transport = StockTransport(self, peers, self._network, library, self._note, self._received)
        options = dict(self._settings.library)
        if self._settings.files:
            options.update(journalFile=JOURNAL, fullDumpFile=DUMP)
        conf = self._copy.config.SyncObjConf(
            autoTick=False, useFork=False, onStateChanged=self._state_changed, **options
        )
        machine = machine_class(self._copy)(self, self._copy.node.Node(self.id), peers, conf, library)
        machine.addOnTickCallback(self.transport.on_tick)
        if not self.disk.stopped:
            self.machine = machine
            self._turn()

    def _turn_in(self, delay_ms: float) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._next_turn = self._scheduler.at(delay_ms, self.run, self._turn)

    def _turn(self) -> None:
        self._next_turn = None
        self._turn_in(1000 * self.machine.conf.autoTickPeriod)
        self.machine.doTick(0.0)

    # --- hooks

    def make_journal(self, path: str | None) -> Any:
        """Return the journal of a life."""
        journal = self._copy.journal
        base, arguments = (journal.MemoryJournal, ()) if path is None else (journal.FileJournal, (path,))
        return journal_class(self._copy, base)(self, self._watcher, *arguments)

    def applying(self, index: int) -> None:
        """An entry is about to be applied."""
        log = self.machine._SyncObj__raftLog
        self._watcher.applying(self, log[index - log[0][1]])

    def _state_changed(self, _old: int, new: int) -> None:
        if new == LEADER:
            self._watcher.leads(self)

    def _note(self, message: Any) -> tuple[int, str]:
        machine = self.machine
        if message["type"] == "next_node_idx" and message["success"]:
            self._watcher.promises(self, message["next_node_idx"] - 1)
            if self.install_failed:
                return machine._SyncObj__raftCurrentTerm, INSTALL_FAILED
        return machine._SyncObj__raftCurrentTerm, ""

    @property
    def install_failed(self) -> bool:
        """Whether this event delivered a snapshot's last chunk, and the log is still the old one."""
        if self.letter is None or self.cleared:
            return False
        chunk = self.letter[1].message.get("serialized")
        return bool(chunk) and chunk[2]

    def _received(self, peer: int, letter: Letter) -> None:
        self.letter = (peer, letter)
        self._turn_in(WAKE_MS)


def chained(digest: int, number: int) -> int:
    """Return the digest behind a further command."""
    return (digest * 1_000_003 + number) % _DIGEST_MODULUS


@cache
def machine_class(copy: StockCopy) -> Any:
    """Return the state machine of a copy: a balance, and what was applied in which order."""
    library = copy.syncobj

    class Machine(library.SyncObj):  # type: ignore[misc, name-defined]
        """Puts and shares of a balance; a share among nobody raises, as a careless state machine does."""

        def __init__(
            self, node: StockNode, own: Any, peers: dict[int, Any], conf: Any, transport: Any
        ) -> None:
            self.node = node
            super().__init__(own, list(peers.values()), conf, transport=transport)
            # attributes from here on are the replicated state
            self.balance = 0
            self.numbers: list[int] = []
            self.digest = 0

        @library.replicated  # type: ignore[untyped-decorator]
        def put(self, number: int, amount: int) -> int:
            """Add to the balance."""
            return self._applied(number, self.balance + amount)

        @library.replicated  # type: ignore[untyped-decorator]
        def share(self, number: int, parts: int) -> int:
            """Divide the balance."""
            return self._applied(number, self.balance // parts)

        def _applied(self, number: int, balance: int) -> int:
            self.balance = balance
            self.numbers.append(number)
            self.digest = chained(self.digest, number)
            return balance

        def is_whole(self) -> bool:
            """Whether the digest is the one of the numbers: false for what no commands can lead to."""
            return bool(reduce(chained, self.numbers, 0) == self.digest)

        def _SyncObj__doApplyCommand(self, command: bytes) -> Any:  # noqa: N802
            self.node.applying(self.raftLastApplied + 1)
            return super()._SyncObj__doApplyCommand(command)

    return Machine


@cache
def journal_class(copy: StockCopy, base: Any) -> Any:
    """Return a journal of the copy with hooks."""

    class Journal(base):  # type: ignore[misc]
        """Tells of what enters and leaves the log."""

        def __init__(self, node: StockNode, watcher: Watcher, *arguments: Any) -> None:
            self._node = node
            self._watcher = watcher
            self._path = arguments[0] if arguments else ""
            super().__init__(*arguments)
            watcher.loaded(node, self[:])

        def add(self, command: bytes, idx: int, term: int) -> None:
            super().add(command, idx, term)
            self._watcher.added(self._node, (command, idx, term))

        def rewrite(self, entries: list[Entry]) -> None:
            """Replace everything at once; only mended code calls it."""
            with self._whole():
                self.clear()
                for entry in entries:
                    self.add(*entry)

        def clear(self) -> None:
            if self._node.disk.doing != COMPACTION:
                self._node.cleared = True
            super().clear()

        def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
            self._watcher.removing(self._node, self[entryFrom:])
            super().deleteEntriesFrom(entryFrom)

        def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
            disk = self._node.disk
            disk.doing = COMPACTION
            with self._whole() if copy.whole_compaction else nullcontext():
                super().deleteEntriesTo(entryTo)
            disk.doing = ""

        def _whole(self) -> AbstractContextManager[None]:
            return self._node.disk.whole(self._path) if self._path else nullcontext()

    return Journal
