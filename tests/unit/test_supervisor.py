"""What the supervisor of a local cluster does with its processes, whatever they run, and what it survives."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from quorum.cli.commands import down
from quorum.errors import NodeStoppedError, QuorateError
from quorum.launcher.child import child_environment
from quorum.launcher.files import bound_log, story_since
from quorum.launcher.layout import Layout, plan, write
from quorum.launcher.supervisor import StartReport, Supervisor
from quorum.platform.os_runtime import OsDisk
from quorum.platform.terminal import Console, stop_signals
from tests.support.nodes import hold_port
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
    event = {"message": "it\nis full", "remedy": "make room"}
    log.write_text(json.dumps({"message": "began"}) + "\n")
    assert story_since(log, 0) == "began"
    log.write_text(f"{json.dumps(event)}\n{{cut")
    assert story_since(log, 0) == "error: it is full\nremedy: make room"


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
    monkeypatch.setattr("quorum.launcher.child.PROGRAM", (sys.executable, "-c", ends_itself))
    layout = plan(tmp_path, 1, 0, {})
    write(layout)
    with pytest.raises(NodeStoppedError, match=f"was ended by {named}"):
        asyncio.run(
            Supervisor(layout, Console(io.StringIO())).run(lambda _start: None, deadline_s=DEADLINE_S)
        )


@pytest.mark.parametrize("child", ["node-2", "broker-1"])
def test_down_waits_for_processes_whose_supervisor_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], child: str
) -> None:
    data_dir = tmp_path / child / "data"
    data_dir.mkdir(parents=True)
    held = OsDisk().lock(str(data_dir))
    monkeypatch.setattr(down, "DEADLINE_S", 0.2)
    with pytest.raises(QuorateError, match=rf"{child} \(process {os.getpid()}\)"):
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
        "import sys\n"
        "from quorum.errors import DataDirError\n"
        "from quorum.platform.os_runtime import OsDisk\n"
        "while True:\n"
        "    try:\n"
        "        OsDisk().lock(sys.argv[1])\n"
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
    monkeypatch.setenv("QUORATE_BROKER_LISTEN_CLIENT", "127.0.0.1:1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setattr(sys, "path", ["/bin", *sys.path])
    assert child_environment()["PYTHONPATH"] == "/elsewhere"
    own = {"QUORATE_NODE_ID", "QUORATE_BROKER_LISTEN_CLIENT", "NOTIFY_SOCKET"}
    assert not own & child_environment().keys()
    monkeypatch.setattr(sys, "path", [str(REPOSITORY), *sys.path])
    assert child_environment()["PYTHONPATH"] == f"{REPOSITORY}:/elsewhere"
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment()["PYTHONPATH"] == str(REPOSITORY)


def test_a_node_whose_process_cannot_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, 0, {})
    write(layout)
    # No file can be opened there, as where the disk has no room for one.
    layout.nodes[0].log_file.mkdir()
    news = io.StringIO()
    supervisor = Supervisor(layout, Console(news))
    with pytest.raises(NodeStoppedError, match=r"cannot be started: .*Is a directory"):
        asyncio.run(supervisor.run(lambda _start: None, deadline_s=DEADLINE_S))
    assert "node 1 cannot be started" in news.getvalue()
    assert "starting it again in 0.5 s" in news.getvalue()


#: Stands in for a node or broker. It adds its life and its options to life.log, takes a data directory as a
#: node does, and is ready; with a file `unready` in its folder it is not, and with `dies` it ends, once.
STAND_IN = """
import http.server, pathlib, signal, sys, tomllib
kind, _, config = sys.argv[1:4]
folder = pathlib.Path(config).parent
def note(*words):
    with (folder.parent / "life.log").open("a") as file:
        print(*words, folder.name, file=file)
if (folder / "dies").exists():
    (folder / "dies").unlink()
    sys.exit("error: it dies" + chr(10) + "remedy: none")
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if (folder / "unready").exists() else 200)
        self.end_headers()
    def log_message(self, *words): pass
def end(number, frame):
    note("stop")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
if kind == "serve":
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data/identity.json").touch()
host, _, port = tomllib.loads(pathlib.Path(config).read_text())["listen"]["admin"].partition(":")
server = http.server.HTTPServer((host, int(port)), Answer)
note(*(each for each in sys.argv if each == "--bootstrap"), "start")
server.serve_forever()
"""


class News(io.StringIO):
    """What the supervisor says; it is asked to stop once that holds some words."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self._last = last
        self.stop: Callable[[], None] = lambda: None

    def write(self, text: str) -> int:
        if self._last in text:
            self.stop()
        return super().write(text)


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layout]:
    """Two nodes and two brokers that are stand-ins; their files are written."""
    monkeypatch.setattr("quorum.launcher.child.PROGRAM", (sys.executable, "-c", STAND_IN))
    with contextlib.ExitStack() as held:
        layout = plan(tmp_path, 2, 2, {})
        children = []
        for child in layout.children:
            holder, port = hold_port()
            held.callback(holder.close)
            listen = {"listen": {"admin": f"127.0.0.1:{port}"}}
            ports = {**child.ports, "admin": port}
            children.append(child._replace(ports=ports, settings={**child.settings, **listen}))
        layout = replace(layout, children=tuple(children))
        write(layout)
        yield layout


def supervise(layout: Layout, last: str) -> tuple[list[StartReport], str]:
    """Run stand-ins until the supervisor said some words: what it reported, and all that it said."""
    news = News(last)
    supervisor = Supervisor(layout, Console(news))
    news.stop = supervisor.stop
    reports: list[StartReport] = []

    def ready(report: StartReport) -> None:
        reports.append(report)
        supervisor._console.say("the start is settled")

    asyncio.run(asyncio.wait_for(supervisor.run(ready), DEADLINE_S))
    return reports, news.getvalue()


def test_nodes_and_brokers_are_started_together_and_brokers_stop_first(stand_ins: Layout) -> None:
    (report,), news = supervise(stand_ins, "the start is settled")
    assert report == StartReport(
        "ready", "127.0.0.1:2181,127.0.0.1:2182; for Kafka clients: 127.0.0.1:9092,127.0.0.1:9093", ()
    )
    assert news.endswith("stopped 4 processes\n")
    life = (stand_ins.data_dir / "life.log").read_text().splitlines()
    assert sorted(life[:4]) == [
        *("--bootstrap start node-1", "--bootstrap start node-2", "start broker-1", "start broker-2"),
    ]
    assert [sorted(life[4:6]), sorted(life[6:])] == [
        ["stop broker-1", "stop broker-2"],
        ["stop node-1", "stop node-2"],
    ]
    assert plan(stand_ins.data_dir, None, None, {}).founded


def test_a_process_that_dies_is_started_again_and_its_story_is_said(stand_ins: Layout) -> None:
    (stand_ins.data_dir / "broker-2/dies").touch()
    (stand_ins.data_dir / "node-1/dies").touch()
    _, news = supervise(stand_ins, "broker 2 is ready")
    for name in ("broker 2", "node 1"):
        told = (
            f"{name} stopped with exit code 1; starting it again in 0.5 s\n  error: it dies\n  remedy: none\n"
        )
        assert told in news


def test_a_start_does_not_wait_for_ever_for_a_broker(
    stand_ins: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorum.launcher.supervisor.OTHERS_DEADLINE_S", 2.0)
    (stand_ins.data_dir / "broker-1/unready").touch()
    (report,), _ = supervise(stand_ins, "the start is settled")
    assert report.summary == "3/4 ready"
    assert report.addresses.endswith("; for Kafka clients: 127.0.0.1:9093")
    assert report.stories == ("broker 1 is not ready: HTTP 503",)


def test_founding_is_recorded_with_the_first_ready_node(stand_ins: Layout) -> None:
    """Not when everything is ready: nobody waits with writes for that."""
    (stand_ins.data_dir / "node-2/unready").touch()
    for node in stand_ins.nodes:
        node.data_dir.mkdir()
        (node.data_dir / "identity.json").touch()
    _, news = supervise(stand_ins, "node 1 is ready")
    assert "the start is settled" not in news
    assert plan(stand_ins.data_dir, None, None, {}).founded
