"""The quorum inside a process: as a context manager, in a thread, and as the pytest fixture of others."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from kazoo.client import KazooClient

from quorum.admin.client import get_readiness, get_status
from quorum.client import Client
from quorum.errors import ConfigError, NodeStoppedError, UnreachableError, UsageError
from quorum.local import Ensemble, ensemble, ensemble_in_thread
from quorum.node.node import QuorumNode
from tests.support.nodes import clean_environment
from tests.tidy.rules import REPOSITORY

TIMEOUT_S = 5.0


def ask(url: str) -> dict[str, object]:
    return get_status(url, TIMEOUT_S)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_it_is_ready_when_the_body_starts_and_gone_afterwards(nodes: int) -> None:
    async with ensemble(nodes) as quorum:
        assert len(quorum.hosts.split(",")) == len(quorum.admin_urls) == nodes
        for node_id, url in enumerate(quorum.admin_urls, 1):
            assert (await asyncio.to_thread(get_readiness, url, TIMEOUT_S))[0]
            assert (await asyncio.to_thread(ask, url))["node_id"] == node_id
    await assert_gone(quorum)


async def test_what_is_written_through_one_node_is_read_from_another() -> None:
    async with ensemble(3) as quorum:
        first, *_, last = quorum.hosts.split(",")
        async with Client(first) as writer, Client(last) as reader:
            await writer.create("/a", b"1")
            await reader.sync("/")
            data, _stat = await reader.get("/a")
            assert data == b"1"


async def test_two_run_side_by_side_and_know_nothing_of_each_other() -> None:
    async with ensemble(1) as one, ensemble(1) as other:
        first = await asyncio.to_thread(ask, one.admin_urls[0])
        second = await asyncio.to_thread(ask, other.admin_urls[0])
        assert first["cluster_id"] != second["cluster_id"]


async def test_settings_reach_the_nodes_and_wrong_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"limits\.tick = 1"):
        async with ensemble(1, {"limits": {"tick": 1}}):
            pass
    with pytest.raises(UsageError, match="0 nodes"):
        async with ensemble(0):
            pass


async def test_a_cancellation_while_the_nodes_stop_waits_for_all_of_them() -> None:
    tasks, threads = asyncio.all_tasks(), node_threads()
    running: list[Ensemble] = []
    stopping = asyncio.Event()

    async def use() -> None:
        async with ensemble(3) as quorum:
            running.append(quorum)
            stopping.set()

    using = asyncio.ensure_future(use())
    await stopping.wait()
    for _ in range(3):
        using.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await using
    assert asyncio.all_tasks() == tasks
    assert node_threads() == threads
    await assert_gone(running[0])


async def test_a_node_that_cannot_stop_does_not_keep_the_others_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = QuorumNode.stop

    async def fail_to_stop(node: QuorumNode, *, hand_over: bool = False) -> None:
        if node.config.node.id == 1:
            await stop(node, hand_over=hand_over)
            raise OSError("cannot stop")
        # Later than the failure.
        await asyncio.to_thread(get_readiness, running[0].admin_urls[node.config.node.id - 1], TIMEOUT_S)
        await stop(node, hand_over=hand_over)

    async def use() -> None:
        async with ensemble(3) as quorum:
            running.append(quorum)
            monkeypatch.setattr(QuorumNode, "stop", fail_to_stop)

    tasks, threads = asyncio.all_tasks(), node_threads()
    running: list[Ensemble] = []
    with pytest.raises(OSError, match="cannot stop"):
        await use()
    assert asyncio.all_tasks() == tasks
    assert node_threads() == threads
    await assert_gone(running[0])


@pytest.mark.parametrize("listens", [False, True], ids=["while it starts", "once it listens"])
async def test_one_node_that_fails_at_the_start_ends_the_others_and_is_what_is_told(
    monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    start = QuorumNode.start

    async def fail_to_start(node: QuorumNode) -> None:
        if node.config.node.id != 1:
            await start(node)
        elif listens:
            await start(node)
            node.fail(OSError("disk gone"))
        else:
            raise NodeStoppedError("disk gone")

    monkeypatch.setattr(QuorumNode, "start", fail_to_start)
    tasks, threads = asyncio.all_tasks(), node_threads()
    with pytest.raises(NodeStoppedError, match="disk gone"):
        async with ensemble(3):
            pass
    assert asyncio.all_tasks() == tasks
    assert node_threads() == threads


def node_threads() -> list[str]:
    """Threads but those that the event loop keeps for itself."""
    names = sorted(thread.name for thread in threading.enumerate())
    return [name for name in names if not name.startswith("asyncio_")]


async def assert_gone(quorum: Ensemble) -> None:
    for url in quorum.admin_urls:
        with pytest.raises(UnreachableError):
            await asyncio.to_thread(get_readiness, url, TIMEOUT_S)


def test_in_a_thread_a_blocking_client_works() -> None:
    with ensemble_in_thread(3) as quorum:
        client = KazooClient(quorum.hosts)
        client.start(TIMEOUT_S)
        try:
            client.create("/a", b"1", ephemeral=True)
            assert client.get("/a")[0] == b"1"
        finally:
            client.stop()
            client.close()


def test_an_error_at_the_start_reaches_the_caller_of_the_thread() -> None:
    with pytest.raises(ConfigError), ensemble_in_thread(1, {"limits": {"tick": 1}}):
        pass


def test_an_interrupt_before_the_loop_of_the_thread_runs_ends_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = threading.Semaphore(0)
    make_loop, join = uvloop.new_event_loop, threading.Thread.join

    def slow() -> asyncio.AbstractEventLoop:
        # An interrupt that comes just before the main thread waits does not wake it.
        while True:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if joined.acquire(timeout=5.0):
                return make_loop()

    def joining(thread: threading.Thread, timeout: float | None = None) -> None:
        joined.release()
        join(thread, timeout)

    monkeypatch.setattr(uvloop, "new_event_loop", slow)
    monkeypatch.setattr(threading.Thread, "join", joining)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), ensemble_in_thread(1):
        pass
    # Threads of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_an_error_in_the_body_reaches_the_caller_and_everything_ends() -> None:
    with pytest.raises(ZeroDivisionError), ensemble_in_thread(1) as quorum:
        raise ZeroDivisionError
    with pytest.raises(UnreachableError):
        get_readiness(quorum.admin_urls[0], TIMEOUT_S)


def test_nothing_global_changes_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = process_state()
    with ensemble_in_thread(3):
        assert {**process_state(), "threads": before["threads"], "folders": before["folders"]} == before
    assert process_state() == before


def process_state() -> dict[str, object]:
    """What an embedded quorum must leave as it is."""
    return {
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "policy": type(asyncio.get_event_loop_policy()),
        "collector": (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()),
        "handlers": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "pickle": (pickle.loads, pickle.load, pickle.dumps),
        "environment": dict(os.environ),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "folders": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
    }


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Run a test file of another project with our plugin, warnings as errors."""

    def run(test: str, settings: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_theirs.py").write_text(test)
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}")
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "quorum.pytest_plugin", "-p", "no:cacheprovider"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        )

    return run


THEIRS = """
from kazoo.client import KazooClient
from quorum.admin.client import get_status

seen = set()

def write(quorum):
    client = KazooClient(quorum.hosts)
    client.start(5)
    client.create("/mine")
    client.stop()
    client.close()
    seen.add(get_status(quorum.admin_urls[0], 5)["cluster_id"])

def test_one(quorate_quorum):
    assert len(quorate_quorum.admin_urls) == 2
    write(quorate_quorum)

def test_two(quorate_quorum):
    write(quorate_quorum)
    assert len(seen) == 2
"""


def test_the_fixture_gives_each_test_an_empty_quorum(
    run_pytest: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    done = run_pytest(THEIRS, "quorate_nodes = 2\n")
    assert done.returncode == 0, done.stdout


def test_the_fixture_can_be_shared(
    run_pytest: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    shared = THEIRS.replace('"/mine"', '"/mine", sequence=True').replace("len(seen) == 2", "len(seen) == 1")
    done = run_pytest(shared, "quorate_nodes = 2\nquorate_scope = session\n")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("settings", "named"), [("quorate_scope = day\n", "'day'"), ("quorate_nodes = some\n", "'some'")]
)
def test_a_wrong_setting_of_the_fixture_is_named(
    run_pytest: Callable[[str, str], subprocess.CompletedProcess[str]], settings: str, named: str
) -> None:
    done = run_pytest(THEIRS, settings)
    assert done.returncode != 0
    assert named in done.stdout + done.stderr


def test_a_run_that_asks_for_no_quorum_does_not_load_one(
    run_pytest: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    done = run_pytest("import sys\ndef test_x():\n    assert 'quorum.node.node' not in sys.modules\n", "")
    assert done.returncode == 0, done.stdout


def test_the_plugin_is_found_where_quorate_is_installed() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"quorate": "quorum.pytest_plugin"}


def test_the_socket_module_stays_as_it_was() -> None:
    """The library below replaces a function of it when it is imported."""
    program = (
        "import socket; before = socket.inet_ntop; import quorum.local; assert socket.inet_ntop is before"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=clean_environment())
