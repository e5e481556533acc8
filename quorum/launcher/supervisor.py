"""Runs the nodes of a local quorum as processes: starts them, starts them again, stops them, the leader last.

Decides when a node is started again (at once the first time, then later and later), that one whose data are
lost is not, and in which order nodes are stopped. Knows of a node only what its admin port says, how its
process ended, and whether it has data; a node's data directory is never touched. The nodes hold the read end
of a pipe whose other end is here: when this process ends in any way, they stop. Soft state only: the
processes, and the last answers of the admin ports.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from quorum.admin.client import get_readiness, get_status
from quorum.errors import NodeStoppedError, UnreachableError, remedy_for_os, told_by_os
from quorum.launcher.child import PROGRAM, child_environment
from quorum.launcher.layout import HOST, Layout, LocalNode, start_options, tend_bootstrap
from quorum.launcher.process_logs import bound_log, story_since
from quorum.platform.terminal import Console, stop_signals

POLL_READY_S = 0.1
POLL_S = 1.0
ANSWER_TIMEOUT_S = 1.0
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
#: How long nodes that are not ready are waited for once a majority is.
OTHERS_DEADLINE_S = 60.0
#: After so long a start that is not settled says what it waits for.
PATIENCE_S = 10.0
#: A node that ran this long has recovered: its next restart is an early one again.
RECOVERED_S = 60.0
STOP_DEADLINE_S = 20.0
#: The role of a node whose start waits for room on its disk.
ROLE_THAT_WAITS = "starting"


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
    #: ids of those of them that do not vote: they are to join, or catch up
    learners: frozenset[int] = frozenset()
    #: other nodes refuse it
    refused: bool = False


class StartReport(NamedTuple):
    """What became of a start, once it is settled.

    Attributes:
        ready: the nodes that serve clients, a majority.
        missing: what is to be said of each other member, a few lines each.
        strangers: what is to be said of nodes that do not run and are no members.
    """

    ready: tuple[LocalNode, ...]
    missing: tuple[str, ...]
    strangers: tuple[str, ...]

    @property
    def summary(self) -> str:
        """ "ready", or how many of how many are."""
        count = len(self.ready)
        return f"{count} of {count + len(self.missing)} nodes are ready" if self.missing else "ready"

    @property
    def hosts(self) -> str:
        """What a ZooKeeper client is given."""
        return ",".join(f"{HOST}:{node.client}" for node in self.ready)


class Supervisor:
    """The processes of one data directory. The caller holds its lock and has written its files."""

    def __init__(self, layout: Layout, console: Console) -> None:
        self._layout = layout
        self._console = console
        #: {node id: its process}, only while it runs
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._views = {node.node_id: View() for node in layout.nodes}
        #: nodes that ended before they were ready for the first time, or have no data, with their stories
        self._refused: dict[int, str] = {}
        #: monotonic time since which a majority is ready, None before
        self._majority_since: float | None = None
        self._was_ready: set[int] = set()
        #: nodes that were last told to be refused by others
        self._told_refused: set[int] = set()
        #: nodes that were last told to be ready
        self._told_ready: set[int] = set()
        #: (leader, term) that was told last
        self._told_leader: tuple[int, int] | None = None
        #: what was last told of files that cannot be kept in order
        self._told_troubles: set[str] = set()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._pipe = os.pipe()
        # one thread per node: a node that hangs delays nobody else's answer
        self._threads = ThreadPoolExecutor(max_workers=len(layout.nodes), thread_name_prefix="poll")

    async def run(self, on_ready: Callable[[StartReport], None], *, deadline_s: float = math.inf) -> None:
        """Run until a signal or `stop` asks to stop; another SIGINT or SIGTERM kills.

        Args:
            on_ready: called once, when a majority of the members is ready and nothing is to be expected of
                the others soon.
            deadline_s: for that.

        Raises:
            NodeStoppedError: every node refused to start, or the deadline passed; with their stories.
        """
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        keepers = [asyncio.create_task(self._keep_running(node)) for node in self._layout.nodes]
        watch = asyncio.create_task(self._watch(on_ready, time.monotonic() + deadline_s))
        stop = asyncio.create_task(self._stopping.wait())
        try:
            # A keeper that ends by itself has failed: its node would never be started again.
            await asyncio.wait({watch, stop, *keepers}, return_when=asyncio.FIRST_COMPLETED)
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

    def stop(self) -> None:
        """Ask to stop all nodes in order; `run` returns when they have."""
        self._stopping.set()

    def _on_signal(self, number: signal.Signals) -> None:
        # A terminal that is closed is told by the kernel and by the shell: that is one request.
        if self._stopping.is_set() and number != signal.SIGHUP:
            self._hurry.set()
        self.stop()

    async def _keep_running(self, node: LocalNode) -> None:
        """Start a node, and again whenever it ends, until everything is to stop."""
        backoff_s, told = BACKOFF_FIRST_S, ""
        while (options := await self._await_data(node)) is not None:
            started = time.monotonic()
            offset = node.log_file.stat().st_size if node.log_file.exists() else 0
            try:
                process = await self._start(node, options)
            except OSError as error:
                self._tell_not_started(node, error, backoff_s)
                await _wait(self._stopping, backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
                continue
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
            story = story_since(node.log_file, offset) if exit_code > 0 else ""
            if node.node_id not in self._was_ready:
                self._refused[node.node_id] = story or ended
            if time.monotonic() - started > RECOVERED_S:
                backoff_s = BACKOFF_FIRST_S
            if not self._is_lost(node):
                again = f"starting it again in {backoff_s:g} s"
                self._console.say(f"node {node.node_id} {ended}; {again}", "yellow")
                self._say_story(story if story != told else "")
                told = story
                await _wait(self._stopping, backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def _tell_not_started(self, node: LocalNode, error: OSError, again_s: float) -> None:
        """Say why there is no process of a node: no room for its log, or no process to be had."""
        problem = f"cannot be started: {told_by_os(error, 'making its process')}"
        remedy = remedy_for_os(error)
        self._views[node.node_id] = View(reason=problem)
        if node.node_id not in self._was_ready:
            self._refused[node.node_id] = f"error: it {problem}\nremedy: {remedy}"
        self._console.say(
            f"node {node.node_id} {problem} ({remedy}); trying again in {again_s:g} s", "yellow"
        )

    def _say_story(self, story: str) -> None:
        for line in story.splitlines():
            self._console.say(f"  {line}")

    def _is_lost(self, node: LocalNode) -> bool:
        """Whether a node has no data and may not join without them."""
        return start_options(self._layout, node, replaced=self._is_awaited(node.node_id)) is None

    def _is_awaited(self, node_id: int) -> bool:
        """Whether the leader waits for a node to join: it was replaced or added, and does not vote."""
        leader_id = self._leader()
        return leader_id is not None and node_id in self._views[leader_id].learners

    async def _await_data(self, node: LocalNode) -> list[str] | None:
        """Return the options of a node's next start, None when everything is to stop.

        A node whose data are lost is waited for: until they are back, or the cluster has given them up.
        """
        told = ""
        while not self._stopping.is_set():
            options = start_options(self._layout, node, replaced=self._is_awaited(node.node_id))
            if options is not None:
                if told:
                    self._refused.pop(node.node_id, None)
                    how = "joins with an empty directory" if "--join" in options else "has its data again"
                    self._console.say(f"node {node.node_id} {how}")
                return options
            story = self._story_of_loss(node)
            if story != told:
                told = self._refused[node.node_id] = story
                self._views[node.node_id] = View(reason="is not running: its data are missing")
                self._console.say(f"node {node.node_id} is not running", "yellow")
                self._say_story(story)
            await _wait(self._stopping, POLL_S)
        return None

    def _story_of_loss(self, node: LocalNode) -> str:
        others = [other for other in self._layout.nodes if other is not node]
        # any node that runs may be asked; which ones will is not known yet
        asked = next((other for other in others if not other.empty), None)
        remedy = "put the data back, and it starts by itself"
        if asked is not None:
            leader_id = self._leader()
            replace, add = f"replace {node.node_id}", f"add {node.node_id} {HOST}:{node.peer}"
            if leader_id is None:
                # Who is a member is not known yet; a forced start has left out all others.
                command = f"{replace} --admin {asked.admin_url}, or {add} where it is no member any more"
            else:
                is_member = node.node_id in self._views[leader_id].members
                command = f"{replace if is_member else add} --admin {asked.admin_url}"
            remedy += (
                f"; if they are lost: quorate members {command} (a majority must run; then node "
                f"{node.node_id} joins with an empty directory by itself)"
            )
        return f"error: the data directory {node.data_dir} is missing or empty\nremedy: {remedy}"

    async def _start(self, node: LocalNode, options: list[str]) -> asyncio.subprocess.Process:
        arguments = ["--config", str(node.config_file), "--parent-fd", str(self._pipe[0]), *options]
        with node.log_file.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(*PROGRAM, "serve", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(self._pipe[0],),
                # its own process group: Ctrl-C in a terminal reaches us alone, and we stop nodes in order
                process_group=0,
                env=child_environment(),
            )

    async def _watch(self, on_ready: Callable[[StartReport], None], deadline: float) -> None:
        """Ask every node how it is, tell what changed, and keep the status line."""
        announced = False
        impatient_at = time.monotonic() + PATIENCE_S
        while not self._stopping.is_set():
            await asyncio.gather(*(self._ask(node) for node in self._layout.nodes))
            self._tend_files()
            self._tell_changes()
            self._console.show_status(self._summary())
            if not announced and self._is_settled():
                announced = True
                on_ready(self._what_became())
            if not announced and len(self._refused) == len(self._layout.nodes):
                raise self._failed_start("no node could start")
            if not announced and time.monotonic() > impatient_at:
                impatient_at = math.inf
                waits = (
                    f"node {node_id} {view.reason}" for node_id, view in self._views.items() if not view.ready
                )
                self._console.say(f"still starting: {'; '.join(waits)}")
            if not announced and time.monotonic() > deadline:
                raise self._failed_start("no majority of the nodes became ready in time")
            await _wait(self._stopping, POLL_S if announced else POLL_READY_S)

    def _tend_files(self) -> None:
        """Note how far the first start is, and bound the logs; what a disk refuses is told once."""
        logs = (self._layout.log_file, *(node.log_file for node in self._layout.nodes))
        works = [partial(tend_bootstrap, self._layout), *(partial(bound_log, log) for log in logs)]
        troubles = set()
        for work in works:
            try:
                work()
            except OSError as error:
                troubles.add(f"{told_by_os(error, str(self._layout.data_dir))} ({remedy_for_os(error)})")
        for trouble in troubles - self._told_troubles:
            self._console.say(f"a file cannot be kept in order: {trouble}", "yellow")
        self._told_troubles = troubles

    async def _ask(self, node: LocalNode) -> None:
        if node.node_id not in self._processes:
            return
        view = await asyncio.get_running_loop().run_in_executor(self._threads, _look, node)
        if node.node_id in self._processes:
            self._views[node.node_id] = view
            if view.ready:
                self._was_ready.add(node.node_id)
                self._refused.pop(node.node_id, None)

    def _is_settled(self) -> bool:
        """Whether a majority of the members is ready, and of the others nothing is to be expected soon: each
        refused to start, is refused, waits for room on its disk, or was waited for."""
        members = self._members()
        others = [node_id for node_id in members if not self._views[node_id].ready]
        if len(others) * 2 >= len(members):
            self._majority_since = None
            return False
        if self._majority_since is None:
            self._majority_since = time.monotonic()
        if time.monotonic() - self._majority_since > OTHERS_DEADLINE_S:
            return True
        return all(
            node_id in self._refused
            or self._views[node_id].refused
            or self._views[node_id].role == ROLE_THAT_WAITS
            for node_id in others
        )

    def _what_became(self) -> StartReport:
        members = self._members()
        ready = [
            node for node in self._layout.nodes if node.node_id in members and self._views[node.node_id].ready
        ]
        left = [node_id for node_id in members if not self._views[node_id].ready]
        strangers = [node_id for node_id in self._refused if node_id not in members]
        return StartReport(
            tuple(ready),
            tuple(self._story_so_far(node_id) for node_id in left),
            tuple(f"{self._story_so_far(node_id)}\n  it is no member" for node_id in strangers),
        )

    def _story_so_far(self, node_id: int) -> str:
        """Say why a node is not ready."""
        story = self._refused.get(node_id)
        if story is None:
            return f"node {node_id} {self._views[node_id].reason}"
        return "\n  ".join((f"node {node_id} is not running", *story.splitlines()))

    def _failed_start(self, what: str) -> NodeStoppedError:
        stories = "\n".join(
            self._story_so_far(node_id) for node_id, view in self._views.items() if not view.ready
        )
        logs = ", ".join(str(node.log_file) for node in self._layout.nodes)
        return NodeStoppedError(f"{what}\n{stories}", f"follow what is said of each node; their logs: {logs}")

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
                if view.refused and not view.ready:
                    self._console.say(f"node {node_id} {view.reason}", "yellow")
            if view.ready == (node_id in self._told_ready):
                continue
            self._told_ready ^= {node_id}
            self._console.say(f"node {node_id} {'is ready' if view.ready else view.reason}")

    def _summary(self) -> str:
        members = self._members()
        ready = sum(self._views[node_id].ready for node_id in members)
        leader_id = self._leader()
        count = f"{ready}/{len(members)} ready"
        if ready < len(members):
            count += f", not {', '.join(str(each) for each in members if not self._views[each].ready)}"
        if leader_id is None:
            return f"{count} · no leader"
        view = self._views[leader_id]
        parts = (
            f"leader {leader_id} (term {view.term})",
            f"commit {view.commit_index}",
            f"sessions {view.sessions}",
        )
        return " · ".join((count, *parts, "Ctrl-C stops"))

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


def _look(node: LocalNode) -> View:
    """Ask one node; runs in a thread."""
    try:
        ready, reason = get_readiness(node.admin_url, ANSWER_TIMEOUT_S)
        status = get_status(node.admin_url, ANSWER_TIMEOUT_S)
    except UnreachableError:
        return View(reason="does not answer")
    members = status.get("members") or ()
    return View(
        ready=ready,
        reason=f"is not ready: {reason}",
        role=str(status.get("role")),
        term=int(status.get("term") or 0),
        commit_index=int(status.get("commit_index") or 0),
        sessions=int(status.get("sessions") or 0),
        members=frozenset(int(member["node_id"]) for member in members),
        learners=frozenset(int(member["node_id"]) for member in members if not member.get("voter", True)),
        refused=bool(status.get("refused_by")),
    )


def _ended(exit_code: int) -> str:
    """Say how a process ended."""
    if exit_code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return f"was ended by {known.get(-exit_code, f'signal {-exit_code}')}"
    return f"stopped with exit code {exit_code}"


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
