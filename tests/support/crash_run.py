"""Kills node processes with SIGKILL at hundreds of instants and counts what was acknowledged and is gone.

    python -m tests.support.crash_run --kills 500 [--seed N] [--keep FOLDER]

Three nodes with small segments and frequent snapshots take writes from three recording writers. Most kills
are aimed at a disk call: the killer watches the node's marks (disk_watch.py) and kills in the midst of the
call; the others come at a random instant. What was in progress is read after the process is dead. One, two or
all three nodes die together, also while they start, take a snapshot, compact, or install one. A round ends
with every node back and the check of recorded_writes.py.

The seed repeats the choices, not the instants: those belong to the machine.

Source: docs/internals/reliability.md, "Nemeses"; docs/internals/consensus.md, D5, D14–D16, "Journal",
"Snapshots".
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

from tests.support.disk_watch import SYNCING, Call, DiskWatch, Mark, Phase
from tests.support.nodes import (
    QUICK_SESSIONS,
    READY_DEADLINE_S,
    NodeError,
    QuorateNodes,
    eventually,
    tail,
)
from tests.support.recorded_writes import check
from tests.support.writer_fleet import WriterFleet

SEGMENT_BYTES_MAX = 64 * 1024
SNAPSHOT_LOG_BYTES = 192 * 1024
#: Kills between two checks of a long run.
ROUND_KILLS_MAX = 100
AIM_DEADLINE_S = 2.0
ONCE_DEADLINE_S = 10.0
COMPACTION_DEADLINE_S = 30.0
#: Kills beyond the wanted ones until every phase and call has had one.
EXTRA_KILLS_MAX = 30
#: A kill at a random instant comes within so many seconds,
INSTANT_S_MAX = 0.3
#: of a starting node within about the time until it serves,
START_S_MAX = 0.8
#: and of one that installs a snapshot within about the time that this takes.
INSTALL_S_MAX = 0.03
WATCH_NAME = "disk.watch"

WRITING = [
    Mark(Call.FDATASYNC, Phase.WRITES),
    Mark(Call.FDATASYNC, Phase.WRITES),
    Mark(Call.PWRITE, Phase.WRITES),
    Mark(Call.FDATASYNC, Phase.SEGMENT),
    Mark(Call.RENAME, Phase.SEGMENT),
    Mark(Call.FSYNC_DIR, Phase.SEGMENT),
]
SNAPSHOTTING = [Mark(call, Phase.SNAPSHOT) for call in (Call.FDATASYNC, Call.RENAME, Call.FSYNC_DIR)]
COMPACTING = [Mark(call, Phase.COMPACTION) for call in (Call.UNLINK, Call.FSYNC_DIR)]
INSTALLING = [Mark(call, Phase.INSTALL) for call in (*SYNCING, Call.PWRITE) if call is not Call.UNLINK]
STARTING = [Mark(call, Phase.START) for call in (Call.FDATASYNC, Call.FSYNC_DIR)]
#: Phases that come once after a start, and a call that such a phase cannot do without.
ONCE = {Phase.INSTALL: Call.RENAME, Phase.START: Call.FDATASYNC}
#: What a kill is aimed at; None is a random instant.
AIMS: list[Mark | None] = [*WRITING, *SNAPSHOTTING, *SNAPSHOTTING, *COMPACTING, *COMPACTING, *([None] * 5)]

#: Kinds of scenario, in the proportions of a run.
SCENARIOS = ["one"] * 10 + ["two"] * 2 + ["all"] * 4 + ["start"] * 5 + ["install"] * 5


@dataclass(frozen=True)
class Kill:
    """One process that was killed.

    Attributes:
        node_id: which.
        together: how many were killed at that instant.
        aim: what the instant was aimed at, None for a random one.
        marks: the disk calls in progress.
        phase: what the node as a whole was at.
    """

    node_id: int
    together: int
    aim: Mark | None
    marks: tuple[Mark, ...]
    phase: Phase

    def __str__(self) -> str:
        marks = [_name(mark) for mark in self.marks]
        aim = _name(self.aim) if self.aim else "a random instant"
        where = f"node {self.node_id} ({self.together} at once), {self.phase.name}"
        return f"{where}, aimed at {aim}: in {', '.join(marks) or 'no call'}"

    @property
    def bit(self) -> bool:
        """Whether an fsync, rename or unlink was in progress."""
        return any(mark.call in SYNCING for mark in self.marks)


@dataclass
class Report:
    """What a run did and found."""

    seed: int
    kills: list[Kill] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def bit(self) -> int:
        """Kills with an fsync, rename or unlink in progress."""
        return sum(kill.bit for kill in self.kills)

    def in_phase(self, phase: Phase) -> int:
        """Kills of nodes that were at such work."""
        return sum(
            kill.phase is phase or any(mark.phase is phase for mark in kill.marks) for kill in self.kills
        )

    def in_call(self, call: Call) -> int:
        """Kills in the midst of such a call."""
        return sum(any(mark.call is call for mark in kill.marks) for kill in self.kills)

    def missing(self) -> list[Phase | Call]:
        """Phases and calls in which no process was killed yet."""
        phases: list[Phase | Call] = [phase for phase in Phase if not self.in_phase(phase)]
        return phases + [call for call in SYNCING if not self.in_call(call)]

    def table(self) -> str:
        """The run as text."""
        calls: Counter[Mark] = Counter(mark for kill in self.kills for mark in kill.marks)
        calls.update(Mark(Call.NONE, kill.phase) for kill in self.kills if not kill.marks)
        lines = ["in progress ".ljust(12) + "".join(phase.name.lower().rjust(11) for phase in Phase)]
        for call in (*SYNCING, Call.PWRITE, Call.NONE):
            row = "".join(f"{calls[Mark(call, phase)]:11}" for phase in Phase)
            lines.append(call.name.lower().ljust(12) + row)
        together = Counter(kill.together for kill in self.kills)
        aimed = sum(kill.aim is not None for kill in self.kills)
        share = 100 * self.bit // max(1, len(self.kills))
        by_chance = sum(kill.bit for kill in self.kills if kill.aim is None)
        lines += [
            f"kills {len(self.kills)}: alone {together[1]}, by twos {together[2]}, by threes {together[3]}",
            f"aimed at a call {aimed}, at a random instant {len(self.kills) - aimed}",
            f"an fsync, rename or unlink in progress: {self.bit} ({share} %), {by_chance} of them by chance",
            f"acknowledged {self.acknowledged}, unknown {self.unknown}, lost or wrong {len(self.violations)}",
        ]
        return "\n".join(lines)


class CrashRun:
    """Three watched nodes, their writers and the killer."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        broken: str | None = None,
        scenarios: Sequence[str] = SCENARIOS,
        verbose: bool = False,
    ) -> None:
        """Prepare the nodes; entering the context starts them.

        Args:
            folder: for data, output and records.
            seed: of the choices.
            broken: a rule of broken_rules.py to switch off.
            scenarios: kinds of kills, in the wanted proportions.
            verbose: print every kill.
        """
        self.report = Report(seed)
        self._random = random.Random(seed)
        self._folder = folder
        options = ["--watch", WATCH_NAME, "--snapshot-log-bytes", str(SNAPSHOT_LOG_BYTES)]
        options += ["--break", broken] if broken else []
        self.nodes = QuorateNodes(
            folder=folder / "nodes",
            settings={
                "raft": {"segment_bytes_max": SEGMENT_BYTES_MAX, "batch_bytes_max": SEGMENT_BYTES_MAX},
                "limits": {**QUICK_SESSIONS["limits"], "frame_bytes_max": SEGMENT_BYTES_MAX},
            },
            arguments=("-m", "tests.support.watched_node", *options, "--", "serve"),
        )
        self._watches = {
            node_id: DiskWatch(node.folder / WATCH_NAME) for node_id, node in self.nodes.nodes.items()
        }
        self._fleet: WriterFleet | None = None
        self._down: set[int] = set()
        self._rounds = 0
        self._begun_s = time.monotonic()
        self._verbose = verbose
        self._scenarios = list(scenarios)
        self._deck: list[str] = []

    def __enter__(self) -> Self:
        self.nodes.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._fleet is not None:
            self._fleet.close()
        self.nodes.__exit__(*exc)

    def run_round(self, kills: int) -> None:
        """Kill so many processes, bring all back, and check what the writers were told.

        Raises:
            NodeError: a node ended by itself or did not come back.
        """
        self._rounds += 1
        self._fleet = fleet = WriterFleet(
            self.nodes,
            self._folder,
            self.report.seed + self._rounds,
            name=f"round-{self._rounds}",
            paths_max=400,
            window=32,
            value_bytes=200,
            check_nodes=self._check_nodes,
        )
        wanted = len(self.report.kills) + kills
        while len(self.report.kills) < wanted:
            if not self._deck:
                self._deck = self._random.sample(self._scenarios, len(self._scenarios))
            self._play(self._deck.pop(), self._random.choice(AIMS))
        if set(self._scenarios) == set(SCENARIOS):
            self._complete()
        fleet.wait_for_progress(100_000)
        history = fleet.finish()
        self.nodes.wait_ready()
        self._check_nodes()
        self.report.acknowledged += history.acknowledged
        self.report.unknown += history.unknown
        self.report.violations += check(history, fleet.final_values(history))
        try:
            self.nodes.one_digest()
        except AssertionError as error:
            self.report.violations.append(str(error))
        fleet.close()

    def _complete(self) -> None:
        """Kill on until it has happened in every phase and call: a run that did not bite does not count."""
        wanted = len(self.report.kills) + EXTRA_KILLS_MAX
        while (missing := self.report.missing()) and len(self.report.kills) < wanted:
            what = missing[0]
            scenario = "install" if what is Phase.INSTALL else "start" if what is Phase.START else "one"
            aims = [aim for aim in AIMS if aim is not None and (aim.phase is what or aim.call is what)]
            self._play(scenario, self._random.choice(aims or AIMS))

    def _play(self, scenario: str, aim: Mark | None) -> None:
        """One scenario: some kills, after which every node is started again."""
        assert self._fleet is not None
        # One in four does not wait for acknowledgements: it meets nodes that are still coming back.
        if self._random.random() < 0.75:
            self._fleet.wait_for_progress(self._random.randrange(5_000, 150_000))
        match scenario:
            case "install":
                self._kill_around_install(aim)
            case "start":
                victim = self._victims(1)[0]
                self._kill([victim], aim)
                self._start(victim)
                self._kill(
                    [victim], self._random.choice([*STARTING, *STARTING, None]), instant_s_max=START_S_MAX
                )
                self._start(victim)
            case _:
                victims = self._victims({"one": 1, "two": 2, "all": 3}[scenario])
                self._kill(victims, aim)
                self._start(*victims)

    def _kill_around_install(self, aim: Mark | None) -> None:
        """Keep a follower down until the log that it needs is compacted, and kill while it is brought up."""
        leader = self._leader()
        follower = self._random.choice([node_id for node_id in self.nodes.node_ids if node_id != leader])
        self._kill([follower], aim)
        committed = eventually(lambda: self._committed(leader), COMPACTION_DEADLINE_S, "the leader answers")
        eventually(lambda: self._compacted_beyond(committed), COMPACTION_DEADLINE_S, "the log is compacted")
        sender = self._leader()
        self._start(follower)
        watch = self._watches[follower]
        if self._random.random() < 0.25:
            self._spin(lambda: watch.active(Phase.INSTALL), ONCE_DEADLINE_S)
            self._kill([sender], None, instant_s_max=INSTALL_S_MAX)
        else:
            aim = self._random.choice([*INSTALLING, *INSTALLING, None])
            if aim is None:
                self._spin(lambda: watch.active(Phase.INSTALL), ONCE_DEADLINE_S)
            self._kill([follower], aim, instant_s_max=INSTALL_S_MAX)
        self._start(*self._down)

    def _leader(self) -> int:
        """Wait for the leader, as long as no node ends by itself."""

        def look() -> int:
            self._check_nodes()
            return self.nodes.leader_now()

        return eventually(look, READY_DEADLINE_S, "a node leads")

    def _committed(self, node_id: int) -> int:
        return int(self.nodes.status(node_id)["commit_index"])

    def _compacted_beyond(self, index: int) -> bool:
        code, body = self.nodes.get(self._leader(), "/metrics")
        found = re.search(rb"^quorate_raft_first_index ([0-9.e+]+)$", body, re.MULTILINE)
        return code == 200 and found is not None and float(found[1]) > index

    def _victims(self, count: int) -> list[int]:
        """Choose nodes, the leader among them half of the time."""
        others = list(self.nodes.node_ids)
        self._random.shuffle(others)
        if self._random.random() < 0.5:
            leader = self._leader()
            others.remove(leader)
            others.insert(0, leader)
        return others[:count]

    def _kill(
        self, victims: Sequence[int], aim: Mark | None, *, instant_s_max: float = INSTANT_S_MAX
    ) -> None:
        """Kill at once, when the first victim is in the wanted call or at a random instant.

        Raises:
            NodeError: one of them had ended by itself.
        """
        self._check_nodes()
        watches = [self._watches[node_id] for node_id in victims]
        processes = [self.nodes.nodes[node_id].process for node_id in victims]
        pids = [self.nodes.pid(node_id) for node_id in victims]
        if aim is None:
            instant = time.monotonic() + self._random.uniform(0, instant_s_max)
            self._spin(lambda: time.monotonic() >= instant, instant_s_max)
        elif aim.phase in ONCE:
            self._spin(lambda: watches[0].sees(aim) or _over(watches[0], aim.phase), ONCE_DEADLINE_S)
        else:
            self._spin(lambda: watches[0].sees(aim), AIM_DEADLINE_S)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for node_id, watch, process in zip(victims, watches, processes, strict=True):
            self.nodes.kill(node_id)  # waits until it is gone
            if process is None or process.returncode != -signal.SIGKILL:
                self._raise_ended(node_id)
            self._down.add(node_id)
            kill = Kill(node_id, len(victims), aim, tuple(watch.marks()), _phase(watch))
            self.report.kills.append(kill)
            if self._verbose:
                say(f"{time.monotonic() - self._begun_s:7.2f} s  {len(self.report.kills):4}  {kill}")

    @staticmethod
    def _spin(instant: Callable[[], bool], deadline_s: float) -> None:
        """Return at once when an instant has come, or at the deadline."""
        deadline = time.monotonic() + deadline_s
        while not instant() and time.monotonic() < deadline:
            time.sleep(0)

    def _start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._watches[node_id].clear()
            self.nodes.start_node(node_id)
            self._down.discard(node_id)

    def _check_nodes(self) -> None:
        """See that every node runs that was not killed.

        Raises:
            NodeError: one ended by itself; with its output.
        """
        for node_id in self.nodes.node_ids:
            if node_id not in self._down and not self.nodes.running(node_id):
                self._raise_ended(node_id)

    def _raise_ended(self, node_id: int) -> NoReturn:
        raise NodeError(f"node {node_id} ended by itself: {tail(self.nodes.nodes[node_id].output_path)}")


def _name(mark: Mark) -> str:
    return f"{mark.call.name}/{mark.phase.name}"


def _over(watch: DiskWatch, phase: Phase) -> bool:
    """Whether a phase that a life of a node has once is behind it: it would be waited for in vain."""
    return watch.begun(ONCE[phase], phase) > 0 and not watch.active(phase)


def _phase(watch: DiskWatch) -> Phase:
    for phase in (Phase.START, Phase.INSTALL, Phase.COMPACTION, Phase.SNAPSHOT):
        if watch.active(phase):
            return phase
    return Phase.WRITES


def crash(run: CrashRun, kills: int) -> Report:
    """Start the nodes, kill in rounds until something is lost or enough were killed, and end the nodes.

    Raises:
        NodeError: a node ended by itself or did not come back: also a failure of what is tested.
    """
    with run:
        while (rest := kills - len(run.report.kills)) > 0 and not run.report.violations:
            run.run_round(min(ROUND_KILLS_MAX, rest))
            if kills > ROUND_KILLS_MAX:
                say(run.report.table())
    return run.report


def say(text: str) -> None:
    """Print at once: a long run is watched."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command line; 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="crash_run", description="kill nodes and look for lost writes")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--keep", type=Path, help="keep data, output and records in this folder")
    parser.add_argument("--verbose", action="store_true", help="print every kill")
    arguments = parser.parse_args()
    seed = arguments.seed or random.SystemRandom().randrange(1, 1 << 31)
    say(f"repeat the choices with --seed {seed}")
    with tempfile.TemporaryDirectory(prefix="crash-run-") as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = crash(CrashRun(folder, seed, verbose=arguments.verbose), arguments.kills)
    say(report.table())
    for line in report.violations[:50]:
        say(line)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
