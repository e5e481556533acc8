"""Which server to try next, and how long to wait before.

Pure: randomness comes in as an argument, time not at all. The first server is a random one, so that clients
spread; after a failure every other server is tried before the same one again, and after a whole fruitless
round the client waits, longer each time and by a random part, so that clients of a restarted quorum do not
arrive in step. Soft state only. Source: ZooKeeper programmer's guide (connection string, reconnecting).
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

DEFAULT_PORT: Final = 2181
BACKOFF_FIRST_MS: Final = 50.0
BACKOFF_MAX_MS: Final = 2000.0


class HostPort(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the form that a connect string has."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_hosts(hosts: str) -> list[HostPort]:
    """Read a connect string such as "127.0.0.1:2181,[::1]:2182"; a missing port is 2181.

    Raises:
        ValueError: the string names no server, or a part of it is malformed or has a chroot path.
    """
    parsed: list[HostPort] = []
    for part in hosts.split(","):
        text = part.strip()
        if "/" in text:
            raise ValueError(
                f"hosts: {text!r}: a chroot path is not supported; put the prefix in front of every path"
            )
        if text.startswith("["):
            host, bracket, rest = text[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise ValueError(f"hosts: {text!r}: expected [address]:port")
            port_text = rest[1:]
        else:
            host, _, port_text = text.partition(":")
        if not host or (not port_text and text.endswith(":")):
            raise ValueError(f"hosts: {text!r} in {hosts!r}: expected host:port, separated by commas")
        parsed.append(HostPort(host, _parse_port(text, port_text) if port_text else DEFAULT_PORT))
    return list(dict.fromkeys(parsed))


def _parse_port(text: str, port_text: str) -> int:
    if not (port_text.isascii() and port_text.isdecimal()) or not 1 <= int(port_text[:6]) <= 65535:
        raise ValueError(f"hosts: {text!r}: the port must be a number from 1 to 65535")
    return int(port_text)


class HostRotation:
    """The order in which servers are tried."""

    def __init__(self, hosts: list[HostPort], rng: random.Random) -> None:
        """Shuffle the servers; at least one is needed."""
        if not hosts:
            raise ValueError("hosts: at least one server is needed")
        self._order = rng.sample(hosts, len(hosts))
        self._rng = rng
        self._next = 0
        #: Attempts since the last connection that served the session.
        self._failures = 0

    def __len__(self) -> int:
        """Count the servers."""
        return len(self._order)

    def next_host(self) -> HostPort:
        """Return the server to try now and move on to the one after it."""
        host = self._order[self._next % len(self._order)]
        self._next += 1
        return host

    def connected(self) -> None:
        """Note that the last server served the session for a while: the next round starts without waiting."""
        self._failures = 0

    def failed_delay_ms(self) -> float:
        """Note that the last server failed; return how many milliseconds to wait before the next attempt."""
        self._failures += 1
        rounds, rest = divmod(self._failures, len(self._order))
        if rest:
            return 0.0
        limit_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2.0 ** min(rounds - 1, 16))
        return limit_ms * (0.5 + self._rng.random() / 2)
