"""What the cases ask of the clients of a system, whatever protocol they speak.

A `Clients` opens connections of its protocol; the cases time what they do and never see a frame. Paths are
znodes to ZooKeeper's protocol and keys with the same names to etcd's. Every method blocks and raises what a
load raises (`LoadError`, `OSError`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Writer(Protocol):
    """One synchronous client of one server that goes on after failures."""

    def write(self, number: int) -> None:
        """Write once and wait for the acknowledgement, over a new connection if the last one broke."""

    def close(self) -> None:
        """End it."""


class Watcher(Protocol):
    """One client that waits for changes of one path, on a connection of its own."""

    socket: socket.socket

    def arm(self) -> None:
        """Begin to wait for the next change."""

    def take(self) -> bool:
        """Take in what has arrived; says whether the change was among it."""


class Clients(Protocol):
    """The clients of one protocol."""

    #: the module that carries out a `wire_load.Job`
    program: str
    #: the most states that one transaction may set beside its check of the fence
    states_per_request: int
    #: whether reads come in two kinds, from the server's own state and linearizable
    linearizable_reads: bool

    def fill(self, host: str, folder: str, count: int, value_bytes: int = 100) -> float:
        """Make a folder, its fence and its nodes; what is there already stays. Returns seconds."""
        ...

    def sync(self, host: str) -> None:
        """Wait until a server has applied everything that was acknowledged before."""

    def setter(self, host: str, path: str) -> AbstractContextManager[Callable[[bytes], None]]:
        """An open connection that writes one existing path when it is called."""
        ...

    def writer(self, host: str, path: str) -> Writer:
        """A client that writes one path of its own."""
        ...

    def leave_behind(self, host: str, path: str, timeout_s: int) -> float:
        """Make a path that ends with its session, and say nothing more in that session.

        Returns:
            Monotonic seconds at which the last request of the session was sent.
        """
        ...

    def watching_ends(self, host: str, paths: Sequence[str]) -> AbstractContextManager[Iterator[str]]:
        """Watch paths from one connection; yields each path when it is told that the path is gone.

        Raises:
            LoadInterruptedError: a path was gone before it was watched.
        """
        ...

    def watchers(self, hosts: Sequence[str], path: str) -> AbstractContextManager[Sequence[Watcher]]:
        """One watcher of a path per host in hosts, each on a connection (and session) of its own."""
        ...
