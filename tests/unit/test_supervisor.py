"""What the supervisor of a local quorum survives: a full disk below its logs, a node that does not start."""

from __future__ import annotations

import argparse
import asyncio
import errno
import io
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from quorum.cli.commands import down
from quorum.errors import NodeStoppedError, QuorateError
from quorum.launcher.child import child_environment
from quorum.launcher.layout import plan, write
from quorum.launcher.process_logs import bound_log, story_since
from quorum.launcher.supervisor import Supervisor
from quorum.platform.os_runtime import OsDisk
from quorum.platform.terminal import Console, stop_signals
from tests.tidy.rules import REPOSITORY

#: a file that takes nothing, for want of room
FULL = Path("/dev/full")
DEADLINE_S = 20.0


def test_a_log_is_cut_once_it_is_too_long_and_its_older_part_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    bound_log(log)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * 100)
        bound_log(log, bytes_max=100)
        assert log.stat().st_size == 100
        writer.write(b"y")
        bound_log(log, bytes_max=100)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "node.log.1").read_bytes() == b"x" * 100 + b"y"


def test_a_log_whose_older_part_finds_no_room_is_cut_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_bytes(b"x" * 101)
    older = tmp_path / "node.log.1"
    older.symlink_to(FULL)
    bound_log(log, bytes_max=100)
    assert log.read_bytes() == b""
    assert not older.is_symlink()


def test_a_log_that_was_moved_away_tells_nothing(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    assert story_since(log, 0) == ""
    log.write_text("an older life\nerror: no\nremedy: do\nthe end\n")
    assert story_since(log, 14) == "error: no\nremedy: do"
    assert story_since(log, 1 << 20) == "error: no\nremedy: do"


class Refusing(io.StringIO):
    """A stream whose file takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


def test_news_that_a_full_disk_does_not_take_ends_nothing() -> None:
    Console(Refusing(errno.ENOSPC)).say("node 1 is ready")
    Console(Refusing(errno.EDQUOT)).say("node 1 is ready")
    Console(Refusing(errno.EAGAIN)).say("node 1 is ready")
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        Console(Refusing(errno.EBADF)).say("node 1 is ready")


def test_news_that_nobody_reads_any_more_end_nothing() -> None:
    """Nor does the stream, when it is closed with what it still holds."""
    read_end, write_end = os.pipe()
    with open(write_end, "w") as stream:  # noqa: PTH123  # it is a descriptor
        console = Console(stream)
        console.say("node 1 is ready")
        os.close(read_end)
        console.say("node 2 is ready")
        console.show_status("2/3 ready")
        console.say("node 3 is ready")


def test_a_hangup_that_is_ignored_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert stop_signals() == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert stop_signals() == [signal.SIGINT, signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "named"), [(int(signal.SIGKILL), "SIGKILL"), (signal.SIGRTMIN + 6, "signal 40")]
)
def test_a_node_may_be_ended_by_any_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, named: str
) -> None:
    ends_itself = f"import os; os.kill(os.getpid(), {number})"
    monkeypatch.setattr("quorum.launcher.supervisor.PROGRAM", (sys.executable, "-c", ends_itself))
    layout = plan(tmp_path, 1, dict.fromkeys(("client", "peer", "admin")))
    write(layout)
    with pytest.raises(NodeStoppedError, match=f"was ended by {named}"):
        asyncio.run(
            Supervisor(layout, Console(io.StringIO())).run(lambda _start: None, deadline_s=DEADLINE_S)
        )


def test_a_file_that_cannot_be_kept_in_order_is_told_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorum.launcher.supervisor.PROGRAM", (sys.executable, "-c", "input()"))
    layout = plan(tmp_path, 1, dict.fromkeys(("client", "peer", "admin")))
    write(layout)
    # What removes the marker finds a folder there.
    layout.pending_file.unlink()
    layout.pending_file.mkdir()
    layout.nodes[0].data_dir.mkdir()
    (layout.nodes[0].data_dir / "identity.json").write_text("{}")
    news = io.StringIO()
    with pytest.raises(NodeStoppedError, match="no node could start"):
        asyncio.run(Supervisor(layout, Console(news)).run(lambda _start: None, deadline_s=DEADLINE_S))
    assert news.getvalue().count(f"cannot be kept in order: {layout.pending_file}") == 1


def test_down_waits_for_nodes_whose_supervisor_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node_data = tmp_path / "node-2/data"
    node_data.mkdir(parents=True)
    held = OsDisk().lock(str(node_data))
    monkeypatch.setattr(down, "DEADLINE_S", 0.2)
    with pytest.raises(QuorateError, match=rf"node 2 \(process {os.getpid()}\)"):
        down.run(argparse.Namespace(data_dir=tmp_path))
    monkeypatch.setattr(down, "DEADLINE_S", DEADLINE_S)
    monkeypatch.setattr(time, "sleep", lambda _: held.release())
    assert down.run(argparse.Namespace(data_dir=tmp_path)) == 0
    assert capsys.readouterr().out == f"stopped what ran on {tmp_path}\n"


def test_down_leaves_what_was_started_meanwhile_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a service manager, say: another start takes the lock at once, and its nodes run."""
    takes_the_lock = (
        "import pathlib, sys\n"
        "from quorum.errors import DataDirError\n"
        "from quorum.launcher.up_lock import Lock\n"
        "while True:\n"
        "    try:\n"
        "        Lock(pathlib.Path(sys.argv[1])).acquire()\n"
        "        break\n"
        "    except DataDirError:\n"
        "        pass\n"
        "print(flush=True)\n"
        "input()\n"
    )
    node_data = tmp_path / "node-1/data"
    node_data.mkdir(parents=True)
    command = [sys.executable, "-c", takes_the_lock, str(tmp_path)]
    begin = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with begin() as first:
        assert first.stdout is not None
        first.stdout.readline()
        with begin() as second:
            held = OsDisk().lock(str(node_data))
            assert down.run(argparse.Namespace(data_dir=tmp_path)) == 0
            held.release()
            assert first.wait(DEADLINE_S) == -signal.SIGTERM
            assert second.poll() is None
    assert "another `quorate up` was started there meanwhile" in capsys.readouterr().out


def test_children_run_the_same_program_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python -m quorum up` in a checkout, whose folder only this process has been given."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("QUORATE_NODE_ID", "7")
    monkeypatch.setattr(sys, "path", ["/bin", *sys.path])
    assert child_environment()["PYTHONPATH"] == "/elsewhere"
    assert "QUORATE_NODE_ID" not in child_environment()
    monkeypatch.setattr(sys, "path", [str(REPOSITORY), *sys.path])
    assert child_environment()["PYTHONPATH"] == f"{REPOSITORY}:/elsewhere"
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment()["PYTHONPATH"] == str(REPOSITORY)


def test_a_node_whose_process_cannot_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, dict.fromkeys(("client", "peer", "admin")))
    write(layout)
    # No file can be opened there, as where the disk has no room for one.
    layout.nodes[0].log_file.mkdir()
    news = io.StringIO()
    supervisor = Supervisor(layout, Console(news))
    with pytest.raises(NodeStoppedError, match=r"cannot be started: .*Is a directory"):
        asyncio.run(supervisor.run(lambda _start: None, deadline_s=DEADLINE_S))
    assert "node 1 cannot be started" in news.getvalue()
    assert "trying again in 0.5 s" in news.getvalue()
