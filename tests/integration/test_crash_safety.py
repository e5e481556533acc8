"""No acknowledged write is lost when processes are killed in the midst of what they do with their files.

Nodes with small segments and frequent snapshots are killed alone, by twos and all together: while they write,
compact, take and install snapshots, and start. Most kills are aimed at an fsync, rename or unlink; what was
in progress is read from shared memory after the process is dead. The long run is a command of its own:
`python -m tests.support.crash_run --kills 500`. CRASH_SAFETY_SEED=<seed> repeats the choices of a run,
not its instants.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.crash_run import CrashRun, Kill, Report, crash, say
from tests.support.disk_watch import SYNCING, Call, Mark, Phase
from tests.support.nodes import NodeError

#: of a run of `make test` and of `make test-long`; each run adds kills until every phase and call had one
KILLS = [8, pytest.param(45, marks=pytest.mark.long)]


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("CRASH_SAFETY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    say(f"repeat the choices with CRASH_SAFETY_SEED={chosen}")
    return chosen


@pytest.mark.parametrize("kills", KILLS)
def test_kills_amid_disk_calls_lose_nothing(tmp_path: Path, seed: int, kills: int) -> None:
    report = crash(CrashRun(tmp_path, seed, verbose=True), kills)
    say(report.table())
    assert not report.violations, "\n".join(report.violations[:20])
    # A run that did not bite does not count.
    assert len(report.kills) >= kills
    assert report.bit >= 0.3 * len(report.kills)
    assert not report.missing(), "no process was killed there"
    assert report.unknown > 0, "no write has an unknown outcome"
    assert report.acknowledged > 200 * kills


def noticed(run: CrashRun, kills: int) -> str:
    """What a run finds: writes that are gone, or a node that refuses to go on with what its disk holds."""
    try:
        return "\n".join(crash(run, kills).violations)
    except NodeError as error:
        return str(error)


@pytest.mark.long
def test_a_run_notices_acknowledgements_before_the_write(tmp_path: Path, seed: int) -> None:
    run = CrashRun(tmp_path, seed, broken="acknowledge-before-write", scenarios=("all",), verbose=True)
    assert noticed(run, 6)


@pytest.mark.long
def test_a_run_notices_a_compaction_of_what_is_needed(tmp_path: Path, seed: int) -> None:
    run = CrashRun(tmp_path, seed, broken="compact-too-early", scenarios=("all", "start"), verbose=True)
    assert noticed(run, 60)


def test_a_report_counts_what_was_in_progress() -> None:
    syncing = Mark(Call.FDATASYNC, Phase.SNAPSHOT)
    writing = Mark(Call.PWRITE, Phase.WRITES)
    report = Report(1)
    report.kills = [
        Kill(1, 1, None, (), Phase.START),
        Kill(2, 1, writing, (writing,), Phase.WRITES),
        Kill(3, 2, writing, (writing, syncing), Phase.SNAPSHOT),
    ]
    assert report.bit == 1
    assert report.missing() == [
        *(Phase.SEGMENT, Phase.INSTALL, Phase.COMPACTION),
        *(call for call in SYNCING if call is not Call.FDATASYNC),
    ]
    assert "an fsync, rename or unlink in progress: 1 (33 %), 0 of them by chance" in report.table()
