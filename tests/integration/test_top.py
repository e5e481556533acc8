"""`quorate top` against real processes: one frame, one object, and live in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from quorum.cli.main import main
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.nodes import eventually, hold_port, server_environment

WAIT_S = 60.0
RECORDS = 30
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
#: a group whose name would clear the screen
HOSTILE = "bill\x1b[2Jing"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Topic `orders` with 30 records, of which two groups have read 10 and 25."""
    with BrokerCluster(brokers=2, nodes=3, session_timeout_ms=SHORT_SESSION_MS) as running:
        create(running, "quiet", "orders")
        with KafkaProducer(bootstrap_servers=running.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("orders", b"%d" % number, partition=0).get(WAIT_S)
        for group, offset in ((HOSTILE, 10), ("shipping", 25)):
            consumer = KafkaConsumer(
                bootstrap_servers=running.bootstrap, group_id=group, enable_auto_commit=False
            )
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek(TopicPartition("orders", 0), offset)
            consumer.commit()
            consumer.close()
        yield running


def create(cluster: BrokerCluster, *names: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(name, 1, 2) for name in names])
    admin.close()


@pytest.fixture(scope="module")
def admin(cluster: BrokerCluster) -> str:
    return ",".join(cluster.nodes.admin_url(node_id) for node_id in cluster.nodes.node_ids)


def test_one_object_has_nodes_brokers_topics_and_groups(
    cluster: BrokerCluster, admin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def read() -> Any:
        assert main(["top", "--once", "--json", "--admin", admin]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["verdict"] == "healthy", found["sentence"]
        return found

    found = eventually(read, WAIT_S, "the cluster is healthy")
    assert [each["id"] for each in found["nodes"]] == [1, 2, 3]
    leader = cluster.nodes.leader()
    assert {each["id"]: each["role"] for each in found["nodes"]}[leader] == "leader"
    assert [(each["id"], each["status"]) for each in found["brokers"]] == [(1, "up"), (2, "up")]
    assert isinstance(found["zxid"], int)
    orders, quiet = found["topics"]
    assert (orders["name"], orders["lag"], orders["records"]) == ("orders", 20 + 5, RECORDS)
    assert (quiet["name"], quiet["status"], quiet["lag"]) == ("quiet", "ok", 0)
    assert [(each["name"], each["lag"]) for each in found["groups"]] == [(HOSTILE, 20), ("shipping", 5)]
    assert found["problem"] is None


def test_one_frame_is_plain_text(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--admin", admin]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    first = [line.partition(" ")[0] for line in lines]
    assert [each for each in first if each.isupper()] == ["NODE", "BROKER", "TOPIC", "GROUP"]
    assert lines[first.index("TOPIC") + 1].startswith("orders ok 1 30 ")
    assert lines[first.index("GROUP") + 1] == r"bill\x1b[2Jing Empty 0 1 20"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An admin port where nothing listens."""
    holder, port = hold_port()
    with holder:
        yield f"http://127.0.0.1:{port}"


def test_a_cluster_that_cannot_be_read_is_said(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--once"], ["--json"], []):
        assert main(["top", "--admin", nobody, *words]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        error, remedy = shown.err.splitlines()
        assert error.startswith("error: no node answers")
        assert nobody in error
        assert remedy.startswith("remedy: ")


def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--admin", "ftp://x"], ["--bootstrap", "127.0.0.1", "--once"], ["--twice"], ["more"]):
        assert main(["top", *words]) == 2, words
        assert "remedy:" in capsys.readouterr().err


class Terminal:
    """A terminal with `quorate top` in it."""

    def __init__(self, *words: str, columns: int = 100, rows: int = 30, **environment: str) -> None:
        self._outer, inner = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(inner)
        self._inner = inner
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quorum", "top", *words],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            # What a shell may have exported before the terminal got another size.
            env={**server_environment(), "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment},
            start_new_session=True,
        )
        self.output = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted: bytes, after: int = 0) -> int:
        """Read until it was written; return how much was."""
        ends_s = time.monotonic() + WAIT_S
        while wanted not in self.output[after:]:
            left_s = ends_s - time.monotonic()
            assert left_s > 0, f"no {wanted!r} in {self.output[after:]!r}"
            if select.select([self._outer], [], [], left_s)[0]:
                self.output += os.read(self._outer, 65536)
        return len(self.output)

    def press(self, keys: bytes) -> None:
        os.write(self._outer, keys)

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._inner)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._outer)
        os.close(self._inner)


@pytest.fixture
def terminal(admin: str) -> Iterator[Terminal]:
    opened = Terminal("--admin", admin)
    yield opened
    opened.close()


def test_it_follows_a_change_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, cluster: BrokerCluster
) -> None:
    terminal.until(ENTER)
    drawn = terminal.until(b"orders")
    assert terminal.settings() != terminal.before
    create(cluster, "news")
    drawn = terminal.until(b"news", drawn)
    terminal.resize(columns=20, rows=8)
    os.kill(terminal.process.pid, signal.SIGWINCH)
    drawn = terminal.until(b"more\x1b[0m\x1b[K\r\n", drawn)
    # As Ctrl-Z does, and back.
    os.kill(terminal.process.pid, signal.SIGTSTP)
    drawn = terminal.until(LEAVE, drawn)
    os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert terminal.settings() == terminal.before
    os.kill(terminal.process.pid, signal.SIGCONT)
    drawn = terminal.until(b"healthy", terminal.until(ENTER, drawn))
    terminal.press(b"q")
    terminal.until(LEAVE, drawn)
    assert terminal.process.wait(WAIT_S) == 0
    assert terminal.settings() == terminal.before
    assert b"bill\x1b" not in terminal.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_before_a_node_answers(nobody: str, number: signal.Signals) -> None:
    terminal = Terminal("--admin", nobody, NO_COLOR="1")
    try:
        drawn = terminal.until(b"no node answers")
        os.kill(terminal.process.pid, number)
        terminal.until(LEAVE, drawn)
        assert terminal.process.wait(WAIT_S) == 0
        assert terminal.settings() == terminal.before
        assert b"\x1b[31m" not in terminal.output
    finally:
        terminal.close()
