"""`python -m tests.bench.turning_node`: `quorate serve` that notes its long turns in its working folder.

A timer that is always due next is late by a turn of the loop, whatever held it; a line of TURNS has what that
took in milliseconds, of the clock and of the loop's own CPU time. Everything else is the shipped node.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from quorum.cli.main import main
from quorum.node.node import QuorumNode

TURNS: Final = "turns.txt"
INTERVAL_S: Final = 0.001
#: shorter ones are not noted
NOTED_MS: Final = 5.0


class _WatchedNode(QuorumNode):
    """A node that notes its turns."""

    async def start(self) -> None:
        """Watch as soon as the disk is read, while the log is applied."""
        loop = asyncio.get_running_loop()

        def look(last_s: float, last_cpu_s: float) -> None:
            now_s, cpu_s = time.monotonic(), time.thread_time()
            spent_ms, cpu_ms = (now_s - last_s) * 1000, (cpu_s - last_cpu_s) * 1000
            if spent_ms >= NOTED_MS:
                with Path(TURNS).open("a") as output:
                    output.write(f"{spent_ms:.1f} {cpu_ms:.1f}\n")
            loop.call_later(INTERVAL_S, look, now_s, cpu_s)

        await super().start()
        look(time.monotonic(), time.thread_time())


if __name__ == "__main__":
    # On a quiet machine nothing may ever be noted.
    Path(TURNS).touch()
    # `quorate serve` looks the class up when it runs.
    sys.modules["quorum.node.node"].QuorumNode = _WatchedNode  # type: ignore[attr-defined]
    sys.exit(main())
