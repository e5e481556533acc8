"""Spark's standalone masters with recoveryMode=ZOOKEEPER elect, and fail over, through Quorate.

Two masters and a worker of an unchanged Spark; the masters find each other through three Quorate nodes alone,
and what the standby knows of the worker it reads from there. Spark's leader gives up by design when its own
connection breaks: so the Raft leader that is killed is one that the leading master is not connected to.
Source: Spark standalone guide 4.3, "Standby Masters with ZooKeeper".
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from tests.support.java import java_command
from tests.support.leader_changes import ask_transfer
from tests.support.nodes import QuorateNodes, eventually, tail

DEADLINE_S = 60.0
STOP_DEADLINE_S = 10.0
#: Spark asks for a minute; what it gets decides how soon the death of a master is noticed.
SETTINGS: dict[str, dict[str, object]] = {
    "limits": {"tick_ms": 500, "session_timeout_min_ms": 1000, "session_timeout_max_ms": 6000}
}
#: What Spark's own launcher opens for Java 17.
OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")


class Daemon:
    """A master or worker of Spark in a process of its own, on ports that the system chose."""

    def __init__(self, folder: Path, main: str, service: str, *arguments: str, **properties: str) -> None:
        """Start it.

        Args:
            folder: where its output is kept.
            main: its class.
            service: what its output calls the service behind its port.
            arguments: of the program.
            properties: of Spark, with "_" for each dot after "spark.".
        """
        folder.mkdir()
        self._output_path = folder / "output.log"
        self._service = service
        java, *rest = java_command(main, *arguments, "--host", "127.0.0.1", "--port", "0", jars=None)
        options = [
            *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED),
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            *(f"-Dspark.{name.replace('_', '.')}={value}" for name, value in properties.items()),
        ]
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(folder)}
        with self._output_path.open("wb") as output:
            self.process = subprocess.Popen(
                [java, *options, *rest],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
            )

    def _port(self, service: str) -> int:
        def find() -> int:
            text = self._output_path.read_text(errors="replace")
            found = re.search(rf"started service '{service}' on port (\d+)", text)
            assert self.process.poll() is None, f"{self._service} ended: {self.output}"
            return int(found[1]) if found else 0

        return eventually(find, DEADLINE_S, f"{service} has a port")

    @property
    def output(self) -> str:
        """The end of what it printed."""
        return tail(self._output_path)

    @property
    def address(self) -> str:
        """host:port of the service."""
        return f"127.0.0.1:{self._port(self._service)}"

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
        first, second = (
            stack.enter_context(
                Daemon(
                    folder / f"master-{number}",
                    "org.apache.spark.deploy.master.Master",
                    "sparkMaster",
                    *("--webui-port", "0"),
                    deploy_recoveryMode="ZOOKEEPER",
                    deploy_zookeeper_url=nodes.hosts,
                )
            )
            for number in (1, 2)
        )
        worker = stack.enter_context(
            Daemon(
                folder / "worker",
                "org.apache.spark.deploy.worker.Worker",
                "sparkWorker",
                *("--webui-port", "0", "--cores", "1", "--memory", "256m"),
                *("--work-dir", str(folder / "work"), f"spark://{first.address},{second.address}"),
            )
        )
        yield Masters(nodes, first, second, worker)


def test_masters_keep_their_roles_through_a_leader_change_and_the_standby_takes_over(
    masters: Masters,
) -> None:
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

    # the leading master dies: the other reads from the quorum what it led
    leading.kill()
    assert masters.alive() is standby
    assert [each["id"] for each in standby.view()["workers"]] == workers
    assert masters.worker.process.poll() is None
