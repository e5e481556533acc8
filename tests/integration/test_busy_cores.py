"""Whether a write runs in the loop is judged by the disk: a core that others use makes no disk slow."""

from __future__ import annotations

import json
import subprocess
import sys

from quorum.raft.journal.writer import STALL_MS

DEADLINE_S = 120.0


def test_a_late_write_stays_inline_and_a_stall_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.late_writer"],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    late, stalled = map(json.loads, done.stdout.splitlines())
    assert late[0] >= STALL_MS > late[1], "the thread waited for its core, not for the disk"
    assert late[2:] == [True, True], "it was written in the loop, and so is the next one"
    assert stalled[1] >= STALL_MS
    assert stalled[2:] == [True, False], "after a stall of the disk the journal's thread writes"
