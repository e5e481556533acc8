"""Java programs of the tests: ZooKeeper's client and shell, Curator, Spark's masters, from the wheel.

`java_command` builds a command line; `JavaProgram` runs a program that talks to its test in lines of JSON on
its standard output and reads words on its standard input. A program may be a source file, which the virtual
machine compiles itself. Nothing here knows what the programs do.
Source: JEP 330 (launch of single-file programs).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.nodes import eventually, tail
from tests.support.zookeeper import TEST_JVM_OPTIONS, ZooKeeperStartError, jars_folder

#: Beginnings of the jars that ZooKeeper's client and Curator need: opening all of Spark's takes seconds.
CLIENT_JARS = (
    *(
        "zookeeper-",
        "curator-",
        "slf4j-api-",
        "commons-cli-",
        "guava-",
        "failureaccess-",
        "netty-",
        "metrics-core-",
    ),
    *("jackson-core-2", "jackson-databind-2", "jackson-annotations-2", "snappy-java-"),
)
STOP_DEADLINE_S = 10.0


def java_command(main: str | Path, *arguments: str, jars: Sequence[str] | None = CLIENT_JARS) -> list[str]:
    """Command line of a small virtual machine.

    Args:
        main: a class of the jars, or a source file.
        arguments: what the program is given.
        jars: beginnings of the names of the jars that it needs; None for all of them.

    Raises:
        ZooKeeperStartError: there is no Java, or no pyspark.
    """
    java = shutil.which("java")
    if java is None:
        raise ZooKeeperStartError("no java on PATH: install a JDK of Java 17 or later")
    folder = jars_folder()
    path = f"{folder}/*"
    if jars is not None:
        path = os.pathsep.join(
            str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(tuple(jars))
        )
    return [java, *TEST_JVM_OPTIONS, "-cp", path, str(main), *arguments]


class JavaProgram:
    """A running program that writes lines of JSON, {"event": name, ...}, and reads words, one per line."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            command: its command line.
            folder: where its standard error is kept, in error.log.
            environment: of the process; the test's own, when absent.
        """
        self._error_path = folder / "error.log"
        with self._error_path.open("wb") as error:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error,
                env=environment,
                text=True,
            )
        #: every line so far, in order
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def say(self, word: str) -> None:
        """Write one line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def all(self, event: str) -> list[dict[str, Any]]:
        """All lines of one event so far."""
        return [line for line in list(self.lines) if line["event"] == event]

    def wait_for(self, event: str, deadline_s: float) -> dict[str, Any]:
        """Wait for the first line of an event.

        Raises:
            AssertionError: it did not come in time, or the program ended without it.
        """

        def seen() -> bool:
            return bool(self.all(event)) or not self._reader.is_alive()

        try:
            eventually(seen, deadline_s, f"the program says {event!r}")
            assert self.all(event), f"it ended without {event!r}"
        except AssertionError as error:
            last = "\n".join(map(str, self.lines[-20:]))
            error.add_note(f"its last lines:\n{last}\nits standard error:\n{tail(self._error_path)}")
            raise
        return self.all(event)[0]

    def wait_end(self, deadline_s: float) -> int:
        """Wait until it ended and all its lines are read; return its exit code."""
        code = self._process.wait(deadline_s)
        self._reader.join(STOP_DEADLINE_S)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
        self._reader.join(STOP_DEADLINE_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
