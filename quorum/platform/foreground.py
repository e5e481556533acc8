"""What servers in the foreground share: options, and requests to stop.

Process-wide settings, made only by commands. No state of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger("quorate.process")


#: What asks a server to stop.
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every server: settings over those of its file, and its supervisor's pipe."""
    parser.add_argument(
        "--set",
        metavar="SECTION.KEY=VALUE",
        dest="settings",
        action="append",
        default=[],
        help="override one setting; may be repeated",
    )
    parser.add_argument(
        "--log-format",
        metavar="FORMAT",
        dest="settings",
        action="append",
        type="log.format={}".format,
        help="how the log is written, text or json: the same as --set log.format=FORMAT",
    )
    # The read end of a pipe that the supervisor holds open: when it closes, the supervisor is gone.
    parser.add_argument("--parent-fd", type=int, help=argparse.SUPPRESS)


@contextlib.contextmanager
def stop_requests(parent_fd: int | None, on_hangup: Callable[[], None]) -> Iterator[asyncio.Future[str]]:
    """Yield a future for the first request to stop and its reason: a signal, or the end of the supervisor.

    SIGHUP, which a terminal sends when it closes and log rotation to be noticed, stops nothing.

    Args:
        parent_fd: the read end of a pipe that the supervisor holds open; None without one.
        on_hangup: called for SIGHUP: reads files again.
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

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, f"{number.name} received")

    def hung_up() -> None:
        log.info("SIGHUP received: files of certificates, keys and secrets are read again")
        on_hangup()

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    if parent_fd is not None:
        loop.add_reader(parent_fd, parent_spoke, parent_fd)
    try:
        yield request
    finally:
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
        if parent_fd is not None:
            loop.remove_reader(parent_fd)
