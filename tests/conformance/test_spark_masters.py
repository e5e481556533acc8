"""Spark's standalone masters with recoveryMode=ZOOKEEPER elect, and fail over, through Quorate.

Two masters and a worker of an unchanged Spark, started by deploy/spark. The masters find each other through
three Quorate nodes alone; what the standby knows of the worker and of a running job it reads from there.
Spark's leader gives up by design when its own connection breaks: so the Raft leader that is killed is one
that the leading master is not connected to.
Source: Spark standalone guide 4.3, "Standby Masters with ZooKeeper".
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from pipeline.checks.verdicts import BAD
from tests.pipeline.recorded import SAMPLED, RecordedRun, broken, judged, sound
from tests.support.leader_changes import ask_transfer
from tests.support.nodes import REPOSITORY, QuorateNodes, eventually, tail

DEADLINE_S = 60.0
JOB_DEADLINE_S = 180.0
STOP_DEADLINE_S = 10.0
#: Spark asks for a minute; what it gets decides how soon the death of a master is noticed.
SETTINGS: dict[str, dict[str, object]] = {
    "limits": {"tick_ms": 500, "session_timeout_min_ms": 1000, "session_timeout_max_ms": 6000}
}
DEPLOY = REPOSITORY / "deploy" / "spark"
#: Where deploy/spark/spark.conf looks for the quorum.
SHIPPED_HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"


class Daemon:
    """A master or worker of Spark in a process of its own, on ports that the system chose."""

    def __init__(self, folder: Path, kind: str, properties: Path, *arguments: str) -> None:
        """Start it as deploy/spark does.

        Args:
            folder: where its output is kept.
            kind: "master" or "worker".
            properties: of Spark.
            arguments: of the program.
        """
        folder.mkdir()
        self._output_path = folder / "output.log"
        self._kind = kind
        environment = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_PROPERTIES": str(properties),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with self._output_path.open("wb") as output:
            # The script becomes the virtual machine: the process is the same.
            self.process = subprocess.Popen(
                [DEPLOY / "daemon.sh", kind, "--port", "0", "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=os.environ | environment,
            )

    def _port(self, service: str) -> int:
        def find() -> int:
            text = self._output_path.read_text(errors="replace")
            found = re.search(rf"started service '{service}' on port (\d+)", text)
            assert self.process.poll() is None, f"{self._kind} ended: {self.output}"
            return int(found[1]) if found else 0

        return eventually(find, DEADLINE_S, f"{service} has a port")

    @property
    def output(self) -> str:
        """The end of what it printed."""
        return tail(self._output_path)

    @property
    def address(self) -> str:
        """host:port of its service."""
        return f"127.0.0.1:{self._port(f'spark{self._kind.capitalize()}')}"

    def view(self) -> dict[str, Any]:
        """What its web page says, as JSON."""
        port = self._port("MasterUI")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as answer:
            try:
                view = json.load(answer)
            except json.JSONDecodeError as error:
                # A master that starts serves its other page there.
                raise AssertionError("the master does not show its state yet") from error
        assert isinstance(view, dict)
        return view

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()


class Masters:
    """Two masters and a worker on three Quorate nodes."""

    def __init__(self, nodes: QuorateNodes, first: Daemon, second: Daemon, worker: Daemon) -> None:
        self.nodes = nodes
        self.both = [first, second]
        self.worker = worker

    def alive(self) -> Daemon:
        """Wait until one master is ALIVE and leads the one worker; the other must not call itself ALIVE."""

        def look() -> list[Daemon]:
            views = [(each, each.view()) for each in self.both if each.process.poll() is None]
            leading = [(each, view) for each, view in views if view["status"] == "ALIVE"]
            if len(leading) > 1:
                pytest.fail(f"two masters lead: {views}")
            return [each for each, view in leading if view["aliveworkers"] == 1]

        return eventually(look, DEADLINE_S, "one master leads the worker")[0]

    def other(self, master: Daemon) -> Daemon:
        """The master that is not the given one."""
        return self.both[1 - self.both.index(master)]

    def servers_of(self, master: Daemon) -> set[int]:
        """The Quorate nodes that a master is connected to: it has a client to elect and one to remember."""
        ports = {node.client_port: node_id for node_id, node in self.nodes.nodes.items()}
        remote = [
            each.raddr.port for each in psutil.Process(master.process.pid).net_connections() if each.raddr
        ]
        found = {ports[port] for port in remote if port in ports}
        assert found, "a master is connected"
        return found


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Masters]:
    """Two masters that found each other, and a worker that one of them leads."""
    folder = tmp_path_factory.mktemp("spark")
    with ExitStack() as stack:
        nodes = stack.enter_context(QuorateNodes(settings=SETTINGS))
        properties = folder / "spark.conf"
        shipped = (DEPLOY / "spark.conf").read_text()
        assert SHIPPED_HOSTS in shipped
        properties.write_text(shipped.replace(SHIPPED_HOSTS, nodes.hosts))
        first, second = (
            stack.enter_context(Daemon(folder / f"master-{number}", "master", properties))
            for number in (1, 2)
        )
        worker = stack.enter_context(
            Daemon(
                folder / "worker",
                "worker",
                properties,
                *("--cores", "1", "--memory", "600m", "--work-dir", str(folder / "work")),
                f"spark://{first.address},{second.address}",
            )
        )
        yield Masters(nodes, first, second, worker)


class Application:
    """A driver that runs a job on the masters: tests/support/spark_application.py."""

    def __init__(self, folder: Path, masters: Masters, run: Path) -> None:
        """Start it."""
        self.folder = folder
        self._output_path = folder / "output.log"
        both = ",".join(each.address for each in masters.both)
        with self._output_path.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark_application", f"spark://{both}", run, folder],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
            )

    def is_running(self) -> bool:
        """Whether one of its tasks runs."""
        assert self.process.poll() is None, tail(self._output_path)
        return (self.folder / "running").exists()

    def verdicts(self) -> list[dict[str, Any]]:
        """Let the task go on, and wait for the answer."""
        (self.folder / "go").touch()
        assert self.process.wait(JOB_DEADLINE_S) == 0, tail(self._output_path)
        found: list[dict[str, Any]] = json.loads((self.folder / "verdicts.json").read_text())
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait(STOP_DEADLINE_S)


@pytest.mark.long
def test_the_standby_takes_over_and_a_running_job_finishes_right(masters: Masters, tmp_path: Path) -> None:
    nodes = masters.nodes
    leading = masters.alive()
    standby = masters.other(leading)
    assert standby.view()["status"] == "STANDBY"
    workers = [each["id"] for each in leading.view()["workers"]]

    # a Raft leader dies that the leading master does not talk to: nobody changes
    victim = next(node_id for node_id in nodes.node_ids if node_id not in masters.servers_of(leading))
    if nodes.leader() != victim:
        code, body = ask_transfer(nodes, nodes.leader(), victim)
        assert code in (200, 202), body
        eventually(lambda: nodes.leader() == victim, DEADLINE_S, "the victim leads")
    nodes.kill(victim)
    nodes.leader()
    nodes.start_node(victim)
    nodes.wait_ready()
    assert masters.alive() is leading
    assert standby.view()["status"] == "STANDBY"

    # the leading master dies while a job runs: the other reads from the quorum what it led
    run = RecordedRun(tmp_path / "run", SAMPLED)
    sound(run)
    broken(run)
    run.close()
    (tmp_path / "job").mkdir()
    with Application(tmp_path / "job", masters, run.folder) as application:
        eventually(application.is_running, DEADLINE_S, "a task runs")
        leading.kill()
        assert masters.alive() is standby
        assert [each["id"] for each in standby.view()["workers"]] == workers
        eventually(lambda: standby.view()["activeapps"], DEADLINE_S, "the standby knows the application")
        verdicts = application.verdicts()
    assert masters.worker.process.poll() is None
    expected = {(name, each.check) for name, each in judged(run.folder) if each.state == BAD}
    assert {(each["workload"], each["check"]) for each in verdicts if each["verdict"] == BAD} == expected
    assert expected
