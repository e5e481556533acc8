"""`python -m tests.bench.snapshot_node`: `quorate serve` that also takes a snapshot when it gets SIGUSR1.

So a benchmark says when snapshots begin instead of writing until the log is long enough. Everything else is
the shipped node.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from quorum.cli.main import main
from quorum.node.node import QuorumNode


class _AskedNode(QuorumNode):
    """A node that takes a snapshot on request."""

    async def start(self) -> None:
        """Start, and listen to the signal."""
        loop = asyncio.get_running_loop()
        asked: set[asyncio.Task[None]] = set()

        def ask() -> None:
            task = loop.create_task(self.take_snapshot())
            asked.add(task)
            task.add_done_callback(asked.discard)

        await super().start()
        loop.add_signal_handler(signal.SIGUSR1, ask)


if __name__ == "__main__":
    # `quorate serve` looks the class up when it runs.
    sys.modules["quorum.node.node"].QuorumNode = _AskedNode  # type: ignore[attr-defined]
    sys.exit(main())
