"""A worker of Kafka Connect 3.9.1, distributed, as a process; its REST port is asked with JSON.

Source: Kafka's documentation, "Kafka Connect", "Running Kafka Connect" and "REST API".
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.site.programs import settings as recommended
from tests.support.kafka_jars import KafkaJarsError, ecosystem_class_path
from tests.support.nodes import hold_port, tail

_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_HTTP_TIMEOUT_S: Final = 10.0


class ConnectWorker:
    """One worker; its port stays reserved while it is down."""

    def __init__(self, folder: Path, bootstrap: str, settings: Mapping[str, str]) -> None:
        """Write its settings; `start` runs it.

        Args:
            folder: for its files.
            bootstrap: of the brokers.
            settings: of this worker, over the usual ones.
        """
        self.folder = folder
        folder.mkdir()
        self._holder, self.port = hold_port()
        usual = {
            "bootstrap.servers": bootstrap,
            "group.id": "workers",
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.partitions": "3",
            "config.storage.topic": "connect-configs",
            "status.storage.topic": "connect-status",
            "status.storage.partitions": "2",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            **recommended("docs/clients/kafka.md", "connect-distributed.properties"),
        }
        path = folder / "worker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in {**usual, **settings}.items()))
        java = shutil.which("java")
        if java is None:
            raise KafkaJarsError("no java on PATH: run deploy/ensure-java.sh, or install Java 17")
        self._command = [java, *_JVM, "-cp", ecosystem_class_path("connect", folder), _MAIN, str(path)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        """The end of what it has printed."""
        return tail(self.folder / "output.log")

    def start(self) -> None:
        """Start it without waiting."""
        with (self.folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status of a REST request and its answer; (0, None): it does not answer."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the worker does not run: {self.output}")
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_HTTP_TIMEOUT_S)
        with contextlib.closing(link):
            try:
                content = None if body is None else json.dumps(body)
                link.request(method, path, content, {"Content-Type": "application/json"})
                response = link.getresponse()
                text = response.read()
            except OSError:
                return 0, None
        return response.status, json.loads(text) if text else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()
        self._holder.close()
