"""What a server in the foreground shares: requests to stop, and its log on standard error.

Process-wide settings, made only by commands. No state of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Iterator

from quorum.platform.terminal import stop_signals


@contextlib.contextmanager
def stop_requests(parent_fd: int | None) -> Iterator[asyncio.Future[str]]:
    """Yield a future for the first request to stop and its reason: a signal, or the end of the supervisor.

    Args:
        parent_fd: the read end of a pipe that the supervisor holds open; None without one.
    """
    loop = asyncio.get_running_loop()
    request: asyncio.Future[str] = loop.create_future()

    def stop(reason: str) -> None:
        if not request.done():
            request.set_result(reason)

    def parent_spoke(fd: int) -> None:
        if not os.read(fd, 1):
            loop.remove_reader(fd)
            stop("its supervisor has gone")

    signals = stop_signals()
    for number in signals:
        loop.add_signal_handler(number, stop, f"{number.name} received")
    if parent_fd is not None:
        loop.add_reader(parent_fd, parent_spoke, parent_fd)
    try:
        yield request
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if parent_fd is not None:
            loop.remove_reader(parent_fd)


def set_up_logging() -> None:
    """Log to standard error, one line an event, with the time."""
    line = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=line, datefmt="%Y-%m-%d %H:%M:%S")
