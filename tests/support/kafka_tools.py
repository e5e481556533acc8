"""Kafka's own command line tools, one after the other in one virtual machine.

Source: tests/conformance/java/KafkaTools.java.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Final

from tests.support.kafka_jars import kafka_java_command

PROGRAM: Final = Path(__file__).parents[1] / "conformance" / "java" / "KafkaTools.java"
#: for one call of a tool
WAIT_S: Final = 60.0


class KafkaTools:
    """Runs the tools, in one virtual machine."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        """Start the machine; close() ends it.

        Args:
            bootstrap: of the brokers.
            folder: for files of the tools.
        """
        self._bootstrap = bootstrap
        self.folder = folder
        self._process = subprocess.Popen(
            kafka_java_command(PROGRAM, folder, "error"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *words: str, code: int = 0, given: str = "") -> str:
        """Call a tool of these brokers; see call."""
        return self.call(name, "--bootstrap-server", self._bootstrap, *words, code=code, given=given)

    def call(self, name: str, *words: str, code: int = 0, given: str = "") -> str:
        """Return what a tool prints that ends with this code; given: its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        lines = given.replace("\n", "\\n")
        self._process.stdin.write("\t".join([f"<{lines}", name, *words]) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        guard = threading.Timer(WAIT_S, self._process.kill)
        guard.start()
        line = "it ended"
        for line in self._process.stdout:
            if line.startswith("= "):
                break
            said.append(line)
        guard.cancel()
        text = "".join(said)
        assert line == f"= {code}\n", text
        return text

    def close(self) -> None:
        """End the virtual machine."""
        self._process.kill()
        self._process.communicate()
