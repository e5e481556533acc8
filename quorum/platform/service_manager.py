"""What a server tells the service manager that started it: that it serves, why not yet, that it stops.

systemd names a datagram socket in NOTIFY_SOCKET; a unit of Type=notify counts as started once READY=1 came
there. Without the variable nothing is sent. Soft state: what was told last.

Source: sd_notify(3), "Well-known assignments"; sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

log = logging.getLogger("quorate.process")

#: between two looks at whether the server serves: before it does for the first time, and after that
STARTING_LOOK_S: Final = 0.1
LOOK_S: Final = 1.0

#: Says whether clients are served, and why or why not, in one sentence.
Readiness = Callable[[], tuple[bool, str]]


class ServiceManager:
    """The socket of a service manager, or nothing where none asked to be told."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read NOTIFY_SOCKET (a path, or a name after @), WATCHDOG_USEC and WATCHDOG_PID."""
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "")
        #: after so long without a word from the event loop the service manager ends the process; 0: never
        self.watchdog_s = int(usec) / 1_000_000 if watched and usec.isdigit() else 0.0

    @property
    def listens(self) -> bool:
        """Whether there is one to tell."""
        return bool(self._address)

    def tell(self, **assignments: str) -> bool:
        """Send assignments, as READY="1"; returns whether they were taken.

        A socket that cannot be used is named in the log once, and no longer told. One that is full may take
        the same later: the event loop does not wait for it.
        """
        if not self._address:
            return False
        message = "\n".join(f"{name}={' '.join(value.split())}" for name, value in assignments.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(message.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            log.warning("NOTIFY_SOCKET: the service manager cannot be told: %s", error.strerror or error)
            self._address = ""
            return False
        return True


@contextlib.asynccontextmanager
async def telling(readiness: Readiness) -> AsyncIterator[None]:
    """Keep the service manager told while the body runs, and tell it at the end that the server stops.

    Args:
        readiness: what /readyz answers; the first time that clients are served is the end of the start.
    """
    manager = ServiceManager(os.environ)
    task = asyncio.ensure_future(_keep_telling(manager, readiness)) if manager.listens else None
    if task is not None:
        task.add_done_callback(_log_error)
    try:
        yield
    finally:
        manager.tell(STOPPING="1", STATUS="stops")
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def _log_error(task: asyncio.Future[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("NOTIFY_SOCKET: nothing more is sent, and a watchdog will end this process", exc_info=error)


async def _keep_telling(manager: ServiceManager, readiness: Readiness) -> None:
    is_started, told = False, ""
    pause_s = min(LOOK_S, manager.watchdog_s / 4) if manager.watchdog_s else LOOK_S
    while manager.listens:
        serves, reason = readiness()
        news = {"STATUS": f"serves: {reason}" if serves else reason}
        if news["STATUS"] == told:
            news = {}
        if serves and not is_started:
            news["READY"] = "1"
        if manager.watchdog_s:
            news["WATCHDOG"] = "1"
        if news and manager.tell(**news):
            is_started, told = is_started or serves, news.get("STATUS", told)
        await asyncio.sleep(pause_s if is_started else STARTING_LOOK_S)
