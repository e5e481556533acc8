"""Runs the nodes of a local quorum as processes: starts them, starts them again, stops them, the leader last.

Decides when a node is started again (at once the first time, then later and later) and in which order nodes
are stopped. Knows of a node only what its admin port says and how its process ended; a node's data directory
is never touched. The nodes hold the read end of a pipe whose other end is here: when this process ends in any
way, they stop. Soft state only: the processes, and the last answers of the admin ports.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from quorum.adminclient import get_readiness, get_status
from quorum.errors import NodeStoppedError, UnreachableError
from quorum.layout import Layout, LocalNode, finish_bootstrap, format_options
from quorum.terminal import Console

POLL_READY_S = 0.1
POLL_S = 1.0
ANSWER_TIMEOUT_S = 1.0
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
#: A node that ran this long has recovered: its next restart is an early one again.
RECOVERED_S = 60.0
STOP_DEADLINE_S = 20.0
LOG_BYTES_MAX = 16 * 1024 * 1024
STORY_BYTES_MAX = 16 * 1024
STORY_LINES_MAX = 6
#: Settings that belong to one node or its supervisor; the environment must not give them to all alike.
_OWN_SETTINGS = ("QUORATE_NODE_", "QUORATE_LISTEN_", "QUORATE_MEMBERS_", "QUORATE_SECURITY_PEER_SECRET_FILE")


class View(NamedTuple):
    """What a node's admin port said last; a node that does not answer is not ready and has no role."""

    ready: bool = False
    reason: str = "does not answer yet"
    role: str = ""
    term: int = 0
    commit_index: int = 0
    sessions: int = 0
    #: ids of the members that it knows
    members: frozenset[int] = frozenset()
    #: other nodes refuse it
    refused: bool = False


class Supervisor:
    """The processes of one data directory. The caller holds its lock and has written its files."""

    def __init__(self, layout: Layout, console: Console) -> None:
        self._layout = layout
        self._console = console
        #: {node id: its process}, only while it runs
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._views = {node.node_id: View() for node in layout.nodes}
        #: nodes that ended before they were ready for the first time, with their stories
        self._refused: dict[int, str] = {}
        self._was_ready: set[int] = set()
        #: nodes that were last told to be refused by others
        self._told_refused: set[int] = set()
        #: nodes that were last told to be ready
        self._told_ready: set[int] = set()
        #: (leader, term) that was told last
        self._told_leader: tuple[int, int] | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._pipe = os.pipe()
        # one thread per node: a node that hangs delays nobody else's answer
        self._threads = ThreadPoolExecutor(max_workers=len(layout.nodes), thread_name_prefix="poll")

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run until a signal asks to stop; the second one kills.

        Args:
            on_ready: called once, when every node that runs is ready and they are a majority.

        Raises:
            NodeStoppedError: every node refused to start; with their stories.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ask_to_stop)
        keepers = [asyncio.create_task(self._keep_running(node)) for node in self._layout.nodes]
        watch = asyncio.create_task(self._watch(on_ready))
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({watch, stop}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await self._stop_all()
            for keeper in keepers:
                await keeper
            if watch.done():
                watch.result()
        finally:
            for task in (watch, stop, *keepers):
                task.cancel()
            await asyncio.gather(watch, stop, *keepers, return_exceptions=True)
            for process in self._processes.values():
                process.kill()
            self._threads.shutdown(wait=False)
            for end in self._pipe:
                os.close(end)
            self._console.show_status("")

    def _ask_to_stop(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def _keep_running(self, node: LocalNode) -> None:
        """Start a node, and again whenever it ends, until everything is to stop."""
        backoff_s = BACKOFF_FIRST_S
        while not self._stopping.is_set():
            started = time.monotonic()
            offset = node.log_file.stat().st_size if node.log_file.exists() else 0
            process = await self._start(node)
            if self._stopping.is_set():
                # it came up while the others were being stopped, and has not done anything yet
                process.kill()
            self._processes[node.node_id] = process
            exit_code = await process.wait()
            del self._processes[node.node_id]
            self._views[node.node_id] = View(reason="is not running")
            self._told_ready.discard(node.node_id)
            if self._stopping.is_set():
                return
            ended = _ended(exit_code)
            story = _story(node, offset) if exit_code > 0 else ""
            if node.node_id not in self._was_ready:
                self._refused[node.node_id] = story or ended
            if time.monotonic() - started > RECOVERED_S:
                backoff_s = BACKOFF_FIRST_S
            self._console.say(f"node {node.node_id} {ended}; starting it again in {backoff_s:g} s", "yellow")
            for line in story.splitlines():
                self._console.say(f"  {line}")
            await _wait(self._stopping, backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    async def _start(self, node: LocalNode) -> asyncio.subprocess.Process:
        options = format_options(self._layout)
        arguments = ["--config", str(node.config_file), "--parent-fd", str(self._pipe[0]), *options]
        with node.log_file.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "quorum", "serve", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(self._pipe[0],),
                # its own process group: Ctrl-C in a terminal reaches us alone, and we stop nodes in order
                process_group=0,
                env={name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)},
            )

    async def _watch(self, on_ready: Callable[[], None]) -> None:
        """Ask every node how it is, tell what changed, and keep the status line."""
        announced = False
        while not self._stopping.is_set():
            await asyncio.gather(*(self._ask(node) for node in self._layout.nodes))
            finish_bootstrap(self._layout)
            self._tell_changes()
            self._console.show_status(self._summary())
            if not announced and self._all_ready():
                announced = True
                on_ready()
            if not announced and len(self._refused) == len(self._layout.nodes):
                stories = "\n".join(
                    f"node {node_id}: {story}" for node_id, story in sorted(self._refused.items())
                )
                raise NodeStoppedError(f"no node could start\n{stories}", "see the node.log of each node")
            for log_file in (self._layout.log_file, *(node.log_file for node in self._layout.nodes)):
                bound_log(log_file)
            await _wait(self._stopping, POLL_S if announced else POLL_READY_S)

    async def _ask(self, node: LocalNode) -> None:
        if node.node_id not in self._processes:
            return
        view = await asyncio.get_running_loop().run_in_executor(self._threads, _look, node)
        if node.node_id in self._processes:
            self._views[node.node_id] = view
            if view.ready:
                self._was_ready.add(node.node_id)
                self._refused.pop(node.node_id, None)

    def _all_ready(self) -> bool:
        """True when a majority of the members is ready and every other one refused to start or is refused."""
        members = self._members()
        ready = [node_id for node_id in members if self._views[node_id].ready]
        settled = all(
            node_id in ready or node_id in self._refused or self._views[node_id].refused
            for node_id in members
        )
        return settled and len(ready) * 2 > len(members)

    def _members(self) -> list[int]:
        """The nodes that the leader counts among the members; all while there is no leader."""
        leader_id = self._leader()
        known = self._views if leader_id is None else self._views[leader_id].members
        return [node_id for node_id in self._views if node_id in known]

    def _leader(self) -> int | None:
        """The leader of the highest term that a node claims to be."""
        claims = [(view.term, node_id) for node_id, view in self._views.items() if view.role == "leader"]
        return max(claims)[1] if claims else None

    def _tell_changes(self) -> None:
        """Say what is new in the answers; the end of a process was told when it ended."""
        leader_id = self._leader()
        if leader_id is not None:
            leadership = (leader_id, self._views[leader_id].term)
            if leadership != self._told_leader:
                self._told_leader = leadership
                self._console.say(f"node {leader_id} leads in term {leadership[1]}")
        for node_id, view in self._views.items():
            if view.refused != (node_id in self._told_refused):
                self._told_refused ^= {node_id}
                if view.refused:
                    self._console.say(f"node {node_id} {view.reason}", "yellow")
            if view.ready == (node_id in self._told_ready):
                continue
            self._told_ready ^= {node_id}
            self._console.say(f"node {node_id} {'is ready' if view.ready else view.reason}")

    def _summary(self) -> str:
        members = self._members()
        ready = sum(self._views[node_id].ready for node_id in members)
        leader_id = self._leader()
        if leader_id is None:
            return f"{ready}/{len(members)} ready · no leader"
        view = self._views[leader_id]
        parts = (
            f"leader {leader_id} (term {view.term})",
            f"commit {view.commit_index}",
            f"sessions {view.sessions}",
        )
        return " · ".join((f"{ready}/{len(members)} ready", *parts, "Ctrl-C stops"))

    async def _stop_all(self) -> None:
        """Stop the followers together, then the leader: nobody shall elect a leader that is to stop next."""
        self._console.show_status("")
        leader_id = self._leader()
        followers = [node_id for node_id in self._processes if node_id != leader_id]
        for group in (followers, [leader_id] if leader_id is not None else []):
            running = {node_id: self._processes[node_id] for node_id in group if node_id in self._processes}
            for process in running.values():
                process.terminate()
            ends = {node_id: asyncio.create_task(process.wait()) for node_id, process in running.items()}
            hurry = asyncio.create_task(self._hurry.wait())
            pending = set(ends.values())
            deadline = time.monotonic() + STOP_DEADLINE_S
            while pending and not hurry.done() and time.monotonic() < deadline:
                _, left = await asyncio.wait(
                    {*pending, hurry},
                    timeout=max(0.0, deadline - time.monotonic()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                pending = left - {hurry}
            hurry.cancel()
            for node_id, end in ends.items():
                if not end.done():
                    self._console.say(f"node {node_id} did not stop in time and was killed", "yellow")
                    running[node_id].kill()
                    await end
        self._console.say(f"stopped {len(self._layout.nodes)} nodes")


def bound_log(path: os.PathLike[str], bytes_max: int = LOG_BYTES_MAX) -> None:
    """Bound a log that a process holds open for appending: copy it aside and empty it.

    What is written between the copy and the cut is lost, a few lines at most; the writer needs to know
    nothing.

    Args:
        path: the log; its older part stands beside it with ".1" added.
        bytes_max: the size above which that happens.
    """
    try:
        if os.stat(path).st_size <= bytes_max:  # noqa: PTH116  # path is any path-like object
            return
        shutil.copyfile(path, f"{os.fspath(path)}.1")
        os.truncate(path, 0)
    except FileNotFoundError:
        return


def _look(node: LocalNode) -> View:
    """Ask one node; runs in a thread."""
    try:
        ready, reason = get_readiness(node.admin_url, ANSWER_TIMEOUT_S)
        status = get_status(node.admin_url, ANSWER_TIMEOUT_S)
    except UnreachableError:
        return View(reason="does not answer")
    return View(
        ready=ready,
        reason=f"is not ready: {reason}",
        role=str(status.get("role")),
        term=int(status.get("term") or 0),
        commit_index=int(status.get("commit_index") or 0),
        sessions=int(status.get("sessions") or 0),
        members=frozenset(int(member["node_id"]) for member in status.get("members") or ()),
        refused=bool(status.get("refused_by")),
    )


def _ended(exit_code: int) -> str:
    """Say how a process ended."""
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"stopped with exit code {exit_code}"


def _story(node: LocalNode, offset: int) -> str:
    """Return the errors that a node wrote since an offset in its log, with remedies, or its last line."""
    with node.log_file.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(offset if offset <= size else 0, size - STORY_BYTES_MAX))
        lines = file.read().decode("utf-8", "replace").splitlines()
    errors = [line for line in lines if line.startswith(("error:", "remedy:"))]
    return "\n".join(errors[:STORY_LINES_MAX] or lines[-1:])


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
