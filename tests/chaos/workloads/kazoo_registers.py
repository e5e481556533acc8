"""The registers through kazoo, an unchanged ZooKeeper client, beside those of our own.

A kazoo client goes to any node and opens another session by itself when its own is over. Only a wrong version
is a certain failure; every other error leaves the outcome unknown.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.chaos.recorder import Call, Process
from tests.chaos.secured import kazoo
from tests.chaos.workloads.base import BAD_VERSION, CONNECT_PATIENCE_MS, OPERATION_TIMEOUT_S

PACE_S: Final = 0.05
SESSION_S: Final = 10.0


class KazooRegisters:
    """One kazoo client."""

    def __init__(
        self, process: Process, hosts: str, paths: dict[str, str], numbers: itertools.count[int]
    ) -> None:
        """Prepare.

        Args:
            process: its history.
            hosts: all nodes.
            paths: {register: its path}.
            numbers: what makes values unique.
        """
        self._process = process
        self._hosts = hosts
        self._paths = paths
        self._numbers = numbers
        self._rng = random.Random(process.name)

    def run(self, stopping: threading.Event) -> None:
        """Read, write, or read and then write at the version that was read, until stopping is set."""
        while not stopping.is_set():
            client = KazooClient(**kazoo(self._hosts), timeout=SESSION_S)
            try:
                client.start(CONNECT_PATIENCE_MS / 1000)
                while not stopping.is_set():
                    self._step(client)
                    stopping.wait(self._rng.uniform(0, 2 * PACE_S))
            except KazooTimeoutError:
                continue
            finally:
                client.stop()
                client.close()

    def _step(self, client: KazooClient) -> None:
        key = self._rng.choice(list(self._paths))
        path = self._paths[key]
        kind = self._rng.choices(["read", "write", "cas"], [5, 2, 3])[0]
        seen = None
        if kind != "write":
            seen = self._read(client, self._process.invoke("read", key, None), path)
        if kind == "read" or (kind == "cas" and seen is None):
            return
        value = f"{self._process.name}/{next(self._numbers)}"
        expected = -1 if seen is None else seen
        argument: Any = value if kind == "write" else [expected, value]
        self._write(client, self._process.invoke(kind, key, argument), path, value, expected)

    @staticmethod
    def _read(client: KazooClient, call: Call, path: str) -> int | None:
        """Return the version; None if it was not told."""
        try:
            synced, read = client.sync_async(path), client.get_async(path)
            synced.get(timeout=OPERATION_TIMEOUT_S)
            content, stat = read.get(timeout=OPERATION_TIMEOUT_S)
        except (KazooException, KazooTimeoutError) as error:
            call.unknown(repr(error))
            return None
        call.ok([stat.version, json.loads(content)], zxid=stat.mzxid)
        return int(stat.version)

    @staticmethod
    def _write(client: KazooClient, call: Call, path: str, value: str, expected: int) -> None:
        try:
            stat = client.set_async(path, json.dumps(value).encode(), expected).get(
                timeout=OPERATION_TIMEOUT_S
            )
        except BadVersionError:
            call.fail(BAD_VERSION)
        except (KazooException, KazooTimeoutError) as error:
            call.unknown(repr(error))
        else:
            call.ok(stat.version, zxid=stat.mzxid)
