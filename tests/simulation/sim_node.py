"""One machine: its disk, its wall clock, its lives.

Decides what the end of a life leaves: a kill leaves the disk as the process saw it, a power cut loses what
was not synced, a crash within a disk call is either of them at a point in the middle of the shipped code.
The member is the shipped one; it is started as `quorate serve` starts it. A start that it refuses and a
member that stopped itself are kept with their stories; whether that was allowed is the invariants' to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from quorum.config.node import NodeConfig
from quorum.core.feature_levels import FEATURE_LEVEL
from quorum.errors import DataDirError
from quorum.node.member import QuorumMember, Sizes
from quorum.raft.datadir.identity import IDENTITY_NAME, Start
from quorum.raft.journal.writer import JOURNAL_LANE
from tests.simulation.client_link import ClientEnd, ClientLink, ServerEnd
from tests.simulation.network import Network, SimTransport
from tests.simulation.scheduler import Scheduler
from tests.simulation.sim_runtime import SimRuntime
from tests.simulation.timeline import Timeline
from tests.support.memory_disk import Cut, MemoryDisk, Stopped

#: twice the longest election timeout, and what a turn of the loop takes
STUCK_ANSWERS_MS_MAX = 1300.0
#: long enough to be noticed by clients and other nodes
LOOP_STALL_MS = 100.0


class Story(NamedTuple):
    """A start that was refused, or a member that stopped itself."""

    time_ms: float
    life: int
    error: BaseException

    def __str__(self) -> str:
        return f"{self.time_ms / 1000:.4f} s, life {self.life}: {type(self.error).__name__}: {self.error}"


class DiskSpeed(NamedTuple):
    """How long an fsync takes: mostly low_ms to high_ms, sometimes up to stall_ms."""

    low_ms: float = 0.1
    high_ms: float = 1.5
    stall_chance: float = 0.02
    stall_ms: float = 15.0


class SimNode:
    """A machine of the world.

    Attributes:
        member: the shipped member of the present life; None while there is none.
        lives: how many were begun.
        refusals: starts that the product refused.
        failures: members that stopped themselves.
        escapes: exceptions that left a callback of the event loop.
        joins: whether the disk is new and the next start is `serve --join`.
        dark: the machine is without power, so that nobody answers for it.
        feature_level: the highest that the build of the next life supports.
        crashes: ends within a call of the disk.
        syncs: fsyncs that took time.
        loop_stalls: how often an fsync held up the loop for LOOP_STALL_MS or longer.
        held: what fell due while the process was stopped.
        stuck_ms: since when entries wait for an fsync of the journal that never comes back, or None.
        told_stuck: answers to clients that left later than STUCK_ANSWERS_MS_MAX behind that.
        on_start: told of each member before it runs.
        on_end: told when a life has ended, however it did.
        on_story: told of each story, and what it is: "refused", "stopped itself" or "escaped".
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        timeline: Timeline,
        config: NodeConfig,
        *,
        sizes: Sizes,
        speed: DiskSpeed | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.config = config
        self.node_id = config.node.id
        self.wall_offset_ms = 0
        self.speed = speed or DiskSpeed()
        self.disk = MemoryDisk(scheduler.rng(f"disk-{self.node_id}"))
        self.member: QuorumMember | None = None
        self.runtime: SimRuntime | None = None
        self.transport: SimTransport | None = None
        self.lives = 0
        self.feature_level = FEATURE_LEVEL
        self.refusals: list[Story] = []
        self.failures: list[Story] = []
        self.escapes: list[Story] = []
        self.joins = False
        self.dark = False
        self.crashes = 0
        self.syncs = 0
        self.loop_stalls = 0
        self.held = 0
        self.stuck_ms: float | None = None
        self.told_stuck = 0
        #: the life whose disk hangs
        self._hung_life = 0
        self.on_start: list[Callable[[SimNode], object]] = []
        self.on_end: list[Callable[[SimNode], object]] = []
        self.on_story: list[Callable[[SimNode, str, BaseException], object]] = []
        #: {server end: client link} of the present life
        self.links: dict[ServerEnd, ClientLink] = {}
        self._troubles_before = 0
        self._timeline = timeline
        self._sizes = sizes
        self._rng = scheduler.rng(f"machine-{self.node_id}")
        #: what a crash within a disk call loses; None: nothing
        self._crash_cut: tuple[Cut | None] | None = None
        network.on_heal.append(self._release_links)

    @property
    def running(self) -> bool:
        """Whether there is a life, paused or not."""
        return self.member is not None

    @property
    def paused(self) -> bool:
        """Whether its process is stopped by a signal."""
        return self.runtime is not None and self.runtime.paused and self.member is not None

    @property
    def formatted(self) -> bool:
        """Whether the data directory has an identity."""
        return self.disk.exists(f"{self.config.node.data_dir}/{IDENTITY_NAME}")

    @property
    def disk_troubled(self) -> bool:
        """Whether the disk failed, or was full, in this life."""
        return self._troubles() > self._troubles_before

    def _troubles(self) -> int:
        return self.disk.failed + self.disk.refused_for_room

    # --- life -------------------------------------------------------------------------------------

    def start(self, mode: Start = Start.PLAIN) -> bool:
        """Begin a life; tell whether the member runs."""
        assert self.member is None, "it runs already"
        self.lives += 1
        self.dark = False
        self._troubles_before = self._troubles()
        scheduler = self.scheduler
        self.runtime = runtime = SimRuntime(
            scheduler, self, scheduler.rng(f"life-{self.node_id}-{self.lives}")
        )
        self.disk.on_call, self.disk.on_sync = runtime.disk_called, runtime.spend_sync
        scheduler.actor = self.node_id
        member = None
        try:
            member = self._build(runtime, mode)
        except Stopped:
            self.crashed()
        except DataDirError as error:
            self._tell(self.refusals, "refused", error)
            self._end(silently=False)
            self.disk.kill()
        if member is None:
            return False
        self._timeline.note(self.node_id, f"started ({mode.value}), life {self.lives}")
        return True

    def _build(self, runtime: SimRuntime, mode: Start) -> QuorumMember:
        config = self.config
        member = QuorumMember(
            config,
            runtime,
            self.disk,
            start=mode,
            on_failure=self._failed,
            sizes=self._sizes,
            feature_level=self.feature_level,
        )
        # What is kept longer than it must hides what goes too early.
        member.storage.journal.segment_before = lambda index: index  # type: ignore[method-assign]
        self.transport = SimTransport(
            self.network,
            runtime,
            self.node_id,
            member.identity,
            config.members,
            member.hears_nobody,
            member.admission,
            member.peer_proved,
        )
        member.attach(self.transport)
        self.member = member
        for told in self.on_start:
            told(self)
        self.transport.start()
        member.start()
        return member

    def kill(self) -> None:
        """End the process; its disk goes on."""
        self._end(silently=False)
        self.disk.kill()
        self._timeline.note(self.node_id, "was killed")

    def power_cut(self, cut: Cut | None = None) -> None:
        """End everything at once; what was not synced is lost as `cut` says, or as is drawn for each file."""
        self._end(silently=True)
        self.dark = True
        self.disk.power_cut(cut)
        self._timeline.note(self.node_id, "lost its power")

    def crash_within(self, calls: int, *, power: bool, cut: Cut | None = None) -> None:
        """Let the process end within the disk call behind the next `calls`, by a kill or by a power cut."""
        self._crash_cut = (cut,) if power else None
        self.disk.stop_after(calls)

    def crashed(self) -> None:
        """The process ended within a call of the disk (called where that came up)."""
        self.crashes += 1
        if self._crash_cut is None:
            self.kill()
        else:
            self.power_cut(*self._crash_cut)

    def pause(self) -> None:
        """Stop the process with a signal."""
        assert self.runtime is not None
        self.runtime.pause()
        self._timeline.note(self.node_id, "was paused")

    def resume(self) -> None:
        """Let it go on."""
        if self.runtime is not None and self.runtime.paused:
            self.held += self.runtime.held
            self.runtime.resume()
            self._timeline.note(self.node_id, "goes on")

    def crash_at(
        self, operation: str, path_part: str, *, power: bool, skip: int = 0, cut: Cut | None = None
    ) -> None:
        """Let the process end within such a call of the disk, by a kill or by a power cut."""
        self._crash_cut = (cut,) if power else None
        self.disk.stop_at(operation, path_part=path_part, skip=skip)

    def wipe(self) -> None:
        """Put an empty disk in; the next start is `--join`."""
        assert self.member is None
        self.disk = MemoryDisk(self.scheduler.rng(f"disk-{self.node_id}-{self.lives}"))
        self.joins = True
        self._timeline.note(self.node_id, "got an empty disk")

    def _end(self, *, silently: bool) -> None:
        self.stuck_ms = None
        if self.runtime is not None:
            self.runtime.end()
        if self.transport is not None:
            self.transport.vanish(silently=silently)
        links, self.links = list(self.links.values()), {}
        for link in links:
            link.process_ended(silently=silently)
        self.member = self.runtime = self.transport = None
        for told in self.on_end:
            told(self)

    # --- clients ----------------------------------------------------------------------------------

    def connect(self, end: ClientEnd, name: str = "client") -> ClientLink:
        """Let a client connect; `end` is told how that went."""
        return ClientLink(self, end, name)

    def _release_links(self) -> None:
        for server, link in list(self.links.items()):
            link.release()
            server.enter(server.unblock)

    # --- what the runtime and the member tell -----------------------------------------------------

    def sync_ms(self) -> float:
        """Draw how long the next fsync takes."""
        self.syncs += 1
        speed, random_ = self.speed, self._rng.random
        if speed.stall_chance and random_() < speed.stall_chance:
            return speed.high_ms + random_() * speed.stall_ms
        return speed.low_ms + random_() * (speed.high_ms - speed.low_ms)

    def hang(self) -> None:
        """From here on no fsync of a lane comes back in this life."""
        self._hung_life = self.lives
        self._timeline.note(self.node_id, "its disk hangs")

    def hangs(self, lane: str) -> bool:
        """Tell whether an fsync of a lane that begins now never comes back."""
        if self._hung_life != self.lives or self.member is None:
            return False
        status = self.member.core.status()
        if lane == JOURNAL_LANE and self.stuck_ms is None and status.durable_index < status.last_index:
            self.stuck_ms = self.scheduler.now_ms
        return True

    def answers(self) -> None:
        """Bytes leave for a client."""
        stuck_ms = self.stuck_ms
        if stuck_ms is not None and self.scheduler.now_ms > stuck_ms + STUCK_ANSWERS_MS_MAX:
            self.told_stuck += 1

    def blocked(self, for_ms: float) -> None:
        """An fsync held up the loop."""
        self.loop_stalls += for_ms >= LOOP_STALL_MS

    def escaped(self, error: BaseException) -> None:
        """An exception left a callback."""
        self._tell(self.escapes, "escaped", error)

    def _failed(self, error: BaseException) -> None:
        """The member stopped itself; its process ends with the story."""
        self._tell(self.failures, "stopped itself", error)
        self.scheduler.at(1.0, self._exit, self.lives)

    def _tell(self, stories: list[Story], what: str, error: BaseException) -> None:
        stories.append(Story(self.scheduler.now_ms, self.lives, error))
        self._timeline.note(self.node_id, f"{what}: {error}")
        for told in self.on_story:
            told(self, what, error)

    def _exit(self, life: int) -> None:
        if self.lives == life and self.member is not None:
            self._end(silently=False)
            self.disk.kill()
