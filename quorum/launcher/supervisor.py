"""Runs the processes of a local cluster from one list: starts them, starts them again, stops them in order.

Decides when a process is started again (at once the first time, then later and later), when a start counts as
ready, and that brokers stop before nodes. Knows of a process only what its /readyz says and how it ended. The
processes hold the read end of a pipe whose other end is here: when this process ends in any way, they stop.
Soft state only, but for the record that a cluster was founded.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quorum.errors import NodeStoppedError, UnreachableError, remedy_for_os, told_by_os
from quorum.launcher.child import Child, child_environment
from quorum.launcher.console import ConsoleProcess
from quorum.launcher.files import bound_log, story_since
from quorum.launcher.layout import Layout, record_founding
from quorum.launcher.probe import is_ready
from quorum.platform.terminal import Console, stop_signals

POLL_READY_S = 0.1
POLL_S = 1.0
ANSWER_TIMEOUT_S = 1.0
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 30.0
#: After so long a start says what it waits for.
PATIENCE_S = 10.0
#: How long the others are waited for once a node is ready.
OTHERS_DEADLINE_S = 30.0
#: A process that ran this long has recovered: its next restart is an early one again.
RECOVERED_S = 60.0
STOP_DEADLINE_S = 20.0


@dataclass(slots=True, eq=False)
class _Kept:
    """One child and its process."""

    child: Child
    process: asyncio.subprocess.Process | None = None
    ready: bool = False
    #: it ended and has not been ready since
    failed: bool = False
    #: how it is, where it is not ready; of one that failed with its story, further lines
    state: str = "does not answer yet"


class StartReport(NamedTuple):
    """What became of a start.

    Attributes:
        summary: "ready", or how many of how many are.
        addresses: where clients find those that are.
        stories: what is to be said of each other, a few lines each.
        console: where it listens, or why it does not; "": none was asked for.
    """

    summary: str
    addresses: str
    stories: tuple[str, ...]
    console: str = ""


class Supervisor:
    """The processes of one data directory. The caller holds its lock and has written its files."""

    def __init__(
        self,
        layout: Layout,
        console: Console,
        pages: ConsoleProcess | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._layout = layout
        #: of every process
        self._options = options
        self._console = console
        self._pages = pages
        self._all = [_Kept(child) for child in layout.children]
        self._nodes = [kept for kept in self._all if kept.child.kind == "node"]
        #: monotonic time since which a node is ready, before the start is settled
        self._served_since = math.inf
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._pipe = os.pipe()
        #: what was last said of logs that cannot be bounded
        self._said_trouble = ""

    async def run(self, on_ready: Callable[[StartReport], None], *, deadline_s: float = math.inf) -> None:
        """Run until a signal or `stop` asks to stop; another SIGINT or SIGTERM kills.

        Args:
            on_ready: called once, when a node serves and nothing is to be expected of the others soon.
            deadline_s: for that.
        """
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        watch = self._watch(on_ready, time.monotonic() + deadline_s)
        tasks = [asyncio.create_task(work) for work in (watch, *map(self._keep_running, self._all))]
        stop = asyncio.create_task(self._stopping.wait())
        try:
            # A task that ends by itself has failed: its process would never be started again.
            await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await self._stop_all()
            await asyncio.gather(*tasks)
        finally:
            for task in (stop, *tasks):
                task.cancel()
            await asyncio.gather(stop, *tasks, return_exceptions=True)
            for kept in self._all:
                if kept.process is not None:
                    kept.process.kill()
            for end in self._pipe:
                os.close(end)
            self._console.show_status("")

    def stop(self) -> None:
        """Ask to stop all processes in order; `run` returns when they have."""
        self._stopping.set()

    def _on_signal(self, number: signal.Signals) -> None:
        # The kernel and the shell both tell of a terminal that is closed: that is one request.
        if self._stopping.is_set() and number != signal.SIGHUP:
            self._hurry.set()
        self.stop()

    async def _keep_running(self, kept: _Kept) -> None:
        """Start a process, and again whenever it ends, until everything is to stop."""
        pause_s, said = PAUSE_FIRST_S, ""
        while not self._stopping.is_set():
            started = time.monotonic()
            state = await self._run_once(kept)
            kept.process, kept.ready, kept.failed, kept.state = None, False, True, state
            if self._stopping.is_set():
                return
            if time.monotonic() - started > RECOVERED_S:
                pause_s = PAUSE_FIRST_S
            ended, _, story = state.partition("\n")
            self._say(kept, f"{ended}; starting it again in {pause_s:g} s", "" if story == said else story)
            said = story
            await _wait(self._stopping, pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _run_once(self, kept: _Kept) -> str:
        """Run a process to its end; returns how it ended, and its story in further lines."""
        log = kept.child.log_file
        try:
            offset = log.stat().st_size if log.exists() else 0
            kept.process = process = await self._start(kept.child)
        except OSError as error:
            problem = told_by_os(error, "making its process")
            return f"cannot be started: {problem}\nremedy: {remedy_for_os(error)}"
        if self._stopping.is_set():
            # it came up while the others were being stopped, and has not done anything yet
            process.kill()
        exit_code = await process.wait()
        if exit_code >= 0:
            return f"stopped with exit code {exit_code}\n{story_since(log, offset)}".rstrip()
        known = {number.value: number.name for number in signal.Signals}
        return f"was ended by {known.get(-exit_code, f'signal {-exit_code}')}"

    def _say(self, kept: _Kept, news: str, story: str = "") -> None:
        self._console.say(f"{kept.child.name} {news}", "yellow")
        for line in story.splitlines():
            self._console.say(f"  {line}")

    async def _start(self, child: Child) -> asyncio.subprocess.Process:
        with child.log_file.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(*child.command, *self._options, "--parent-fd", str(self._pipe[0])),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(self._pipe[0],),
                # its own process group: Ctrl-C in a terminal reaches us alone, and we stop all in order
                process_group=0,
                env=child_environment(),
            )

    async def _watch(self, on_ready: Callable[[StartReport], None], deadline: float) -> None:
        """Ask every process how it is, say what changed, and keep the status line."""
        impatient_at = time.monotonic() + PATIENCE_S
        while not await self._is_settled():
            now = time.monotonic()
            if all(kept.failed for kept in self._nodes):
                raise self._failed_start("no node could start")
            if now > deadline:
                raise self._failed_start("no node became ready in time")
            if now > impatient_at:
                impatient_at = math.inf
                waits = (story.partition("\n")[0] for story in self._stories())
                self._console.say(f"still starting: {'; '.join(waits)}")
            await _wait(self._stopping, POLL_READY_S)
        said = await self._pages.start(self._pipe[0]) if self._pages and not self._stopping.is_set() else ""
        if not self._stopping.is_set():
            on_ready(self._report()._replace(console=said))
        while not self._stopping.is_set():
            await _wait(self._stopping, POLL_S)
            await self._look()
            if self._pages and self._pages.has_ended and not self._stopping.is_set():
                said = await self._pages.start(self._pipe[0])
                self._console.say(f"the console ended and was started again; {said}", "yellow")

    async def _is_settled(self) -> bool:
        """Look, and tell whether a node serves and nothing is expected of the others soon, or all stops.

        One node that is ready shows that there is a cluster, which is recorded at once.
        """
        await self._look()
        if not any(kept.ready for kept in self._nodes):
            self._served_since = math.inf
            return self._stopping.is_set()
        self._served_since = min(self._served_since, time.monotonic())
        settled = all(kept.ready or kept.failed for kept in self._all)
        settled = settled or time.monotonic() - self._served_since > OTHERS_DEADLINE_S
        self._layout = record_founding(self._layout)
        return settled or self._stopping.is_set()

    async def _look(self) -> None:
        await asyncio.gather(*map(self._ask, self._all))
        self._bound_logs()
        self._console.show_status(f"{self._count()} ready · Ctrl-C stops")

    async def _ask(self, kept: _Kept) -> None:
        process = kept.process
        if process is None:
            return
        try:
            ready, reason = await asyncio.to_thread(is_ready, kept.child, ANSWER_TIMEOUT_S)
            state = f"is not ready: {reason}"
        except UnreachableError:
            ready, state = False, "does not answer"
        if kept.process is not process or self._stopping.is_set():
            return
        if ready != kept.ready:
            self._console.say(f"{kept.child.name} {'is ready' if ready else state}")
        kept.ready, kept.failed = ready, kept.failed and not ready
        if not kept.failed:
            kept.state = state

    def _bound_logs(self) -> None:
        trouble = ""
        for log in (self._layout.log_file, *(kept.child.log_file for kept in self._all)):
            try:
                bound_log(log)
            except OSError as error:
                trouble = f"a log cannot be bounded: {told_by_os(error, str(log))} ({remedy_for_os(error)})"
        if trouble and trouble != self._said_trouble:
            self._console.say(trouble, "yellow")
        self._said_trouble = trouble

    def _count(self) -> str:
        ready = sum(kept.ready for kept in self._all)
        return f"{ready}/{len(self._all)}"

    def _report(self) -> StartReport:
        left = self._stories()
        ready = [kept.child for kept in self._all if kept.ready]
        hosts, brokers = (
            ",".join(child.client_address for child in ready if child.kind == kind)
            for kind in ("node", "broker")
        )
        addresses = f"{hosts}; for Kafka clients: {brokers}" if brokers else hosts
        return StartReport(f"{self._count()} ready" if left else "ready", addresses, left)

    def _stories(self) -> tuple[str, ...]:
        """What is to be said of each process that is not ready."""
        left = (kept for kept in self._all if not kept.ready)
        return tuple(f"{kept.child.name} {kept.state}".replace("\n", "\n  ") for kept in left)

    def _failed_start(self, what: str) -> NodeStoppedError:
        stories = "\n".join((what, *self._stories()))
        logs = ", ".join(str(kept.child.log_file) for kept in self._all)
        return NodeStoppedError(stories, f"follow what is said of each; the logs: {logs}")

    async def _stop_all(self) -> None:
        """Stop the brokers together, then the nodes: a broker takes its leave of the quorum."""
        self._console.show_status("")
        if self._pages is not None:
            await self._pages.stop()
        for kind in ("broker", "node"):
            running = [
                (kept.child.name, kept.process)
                for kept in self._all
                if kept.child.kind == kind and kept.process is not None
            ]
            for _, process in running:
                process.terminate()
            ended = asyncio.gather(*(process.wait() for _, process in running))
            hurry = asyncio.create_task(self._hurry.wait())
            first: tuple[asyncio.Future[Any], ...] = (ended, hurry)
            await asyncio.wait(first, timeout=STOP_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            for name, process in running:
                if process.returncode is None:
                    self._console.say(f"{name} did not stop in time and was killed", "yellow")
                    process.kill()
            await ended
        self._console.say(f"stopped {len(self._all)} processes")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
