"""The console beside a local cluster: one more process, without which the cluster is as good.

Decides nothing of it but its command line. A port that is taken is said and is not fatal. Soft state: the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from quorum.errors import told_by_os
from quorum.launcher.child import PROGRAM, child_environment
from quorum.launcher.files import story_since
from quorum.launcher.layout import Layout
from quorum.launcher.probe import admin_url, dialling_words

#: until it says where it listens
START_DEADLINE_S: Final = 20.0
STOP_DEADLINE_S: Final = 6.0


class ConsoleProcess:
    """The `quorate console` of one data directory."""

    def __init__(self, layout: Layout, port: int, options: Sequence[str] = ()) -> None:
        self._log = layout.data_dir / "console.log"
        urls = ",".join(map(admin_url, layout.nodes))
        tls = next((words for node in layout.nodes if (words := dialling_words(node))), ())
        self._command = (*PROGRAM, "console", "--admin", urls, "--port", str(port), *tls, *options)
        self._process: asyncio.subprocess.Process | None = None
        self._served = False

    @property
    def has_ended(self) -> bool:
        """Whether it served, and ended by itself; one that never served has said why."""
        return self._served and self._process is not None and self._process.returncode is not None

    async def start(self, parent_fd: int) -> str:
        """Start it.

        Args:
            parent_fd: the read end of a pipe: it stops when the other end is closed.

        Returns:
            The line that it prints once it serves, or why there is no console.
        """
        try:
            offset = self._log.stat().st_size if self._log.exists() else 0
            with self._log.open("ab") as errors:
                self._process = await asyncio.create_subprocess_exec(
                    *(*self._command, "--parent-fd", str(parent_fd)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    pass_fds=(parent_fd,),
                    process_group=0,
                    env=child_environment(),
                )
        except OSError as error:
            self._served = False
            return f"no console: {told_by_os(error, 'making its process')}"
        assert self._process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_DEADLINE_S):
                line = await self._process.stdout.readline()
        self._served = bool(line)
        if line:
            return line.decode(errors="replace").strip()
        told = " ".join(story_since(self._log, offset).split("\n")).strip()
        return f"no console: {told or 'it did not start in time'} (quorate up --console-port N)"

    async def stop(self) -> None:
        """End it, at the latest by killing it."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
