"""The systemd units of deploy/systemd: what they are, what servers tell a service manager, what they need.

No unit is started, for that takes a machine that systemd runs. The programs of the units run as they stand
there, beside a socket like systemd's, and each system call that their units would refuse is noted.
Source: docs/operate/systemd.md.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaProducer

from quorum.admin.client import checked_urls
from quorum.cli.main import build_parser
from tests.support.broker_cluster import BrokerCluster
from tests.support.nodes import REPOSITORY, QuorateNodes, Settings, clean_environment, eventually, tail
from tests.support.service_manager import NotifySocket, allowed_calls, refused, watched

SYSTEMD = REPOSITORY / "deploy" / "systemd"
HEALTHY = REPOSITORY / "deploy" / "container" / "healthy.py"
PAGE = REPOSITORY / "docs/operate/systemd.md"
NAMES = ("node", "broker", "console")
PROGRAM = "/opt/quorate/bin/quorate"
#: tenths of systemd's points, of 100: a unit that sets nothing has 96
EXPOSURE_MAX = 15
#: the cleaner, a process of its own, has something to do at once
COMPACTING: Settings = {
    "broker": {"auto_create_topics": True},
    "topics": {"cleanup_policy": "compact", "segment_bytes": 100_000, "min_cleanable_dirty_ratio": 0.0},
    "limits": {"segment_bytes_min": 100_000},
    "cleaner": {"log_cleaner_backoff_ms": 100},
}
DEADLINE_S = 90.0
STOP_DEADLINE_S = 30.0


def unit(name: str) -> Path:
    return SYSTEMD / f"quorate-{name}.service"


def verified(folder: Path, *, replaced: tuple[str, str] = ("", "")) -> str:
    """Return what systemd finds wrong with the units; their program is not installed where tests run."""
    paths = []
    for name in NAMES:
        paths.append(folder / unit(name).name)
        paths[-1].write_text(unit(name).read_text().replace(PROGRAM, sys.executable).replace(*replaced))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_units_are_well_formed(tmp_path: Path) -> None:
    assert verified(tmp_path) == ""


def test_a_mistake_in_a_unit_is_found(tmp_path: Path) -> None:
    assert "RestartSek" in verified(tmp_path, replaced=("RestartSec", "RestartSek"))


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_leaves_little_open(name: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}"]
    done = subprocess.run([*command, str(unit(name))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def console_command(environment: dict[str, str]) -> list[str]:
    """The words after the program that the console's unit starts, with variables split as systemd does."""
    line = re.search(rf"^ExecStart={PROGRAM} (.*)$", unit("console").read_text(), re.MULTILINE)
    assert line is not None
    words = line[1].split()
    return [each for word in words for each in (environment[word[1:]].split() if word[0] == "$" else [word])]


def test_the_console_takes_what_its_environment_file_says() -> None:
    """Its file on the page: the option with the token stands before the command, the rest after it."""
    block = re.search(r"```ini\n(GLOBAL_OPTIONS=.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    given = dict(line.split("=", 1) for line in block[1].splitlines())
    parsed = build_parser().parse_args(console_command(given))
    assert parsed.token_file == "/etc/quorate/reader.token"
    assert list(checked_urls(parsed.admin)) == [f"https://10.0.0.{number}:8181" for number in (1, 2, 3)]
    # neither has to be there
    unset = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit("console").read_text(), re.MULTILINE))
    assert console_command(unset) == ["console"]


@dataclass
class Service:
    """A server as its unit starts it."""

    name: str
    process: subprocess.Popen[bytes]
    manager: NotifySocket
    trace: Path
    output: Path
    state: Path

    def told(self, assignment: str) -> bool:
        assert self.process.poll() is None, tail(self.output)
        return assignment in self.manager.told()

    def shows_life(self, since: int) -> bool:
        return "WATCHDOG=1" in self.manager.told()[since:]

    @property
    def status(self) -> str:
        """What it said last about itself."""
        found = [each for each in self.manager.told() if each.startswith("STATUS=")]
        return found[-1].removeprefix("STATUS=") if found else ""


class Services:
    """A node that founds with two others, a broker and a console."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = QuorateNodes(folder=folder)
        self.cluster = BrokerCluster(brokers=1, quorum=self.nodes, folder=folder, settings=COMPACTING)
        self._stack = ExitStack()
        self.services: dict[str, Service] = {}

    def start(self, name: str, command: list[str]) -> Service:
        folder = self.folder / name
        folder.mkdir()
        manager = self._stack.enter_context(NotifySocket(folder / "notify"))
        environment = clean_environment(
            NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="2000000", PYTHONDONTWRITEBYTECODE="1"
        )
        with (folder / "output.log").open("wb") as output:
            process = subprocess.Popen(
                watched(command, allowed_calls(unit(name)), folder / "trace"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
            )
        service = Service(name, process, manager, folder / "trace", folder / "output.log", self.state(name))
        self.services[name] = service
        return service

    def state(self, name: str) -> Path:
        """The folder that the service may write to."""
        data = {"node": self.nodes.nodes[1].data_dir, "broker": self.cluster.brokers[1].data_dir}
        return data.get(name, self.folder / "nowhere")

    def readyz(self, name: str) -> int:
        if name == "node":
            return self.nodes.get(1, "/readyz")[0]
        return self.cluster.get(1, "/readyz")[0]

    def health(self) -> tuple[int, str]:
        """What the container's health check says of the node: its exit code and words."""
        environment = {"HEALTH_URL": f"{self.nodes.admin_url(1)}/readyz"}
        done = subprocess.run(
            [sys.executable, "-I", HEALTHY], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    def close(self) -> None:
        for service in self.services.values():
            service.process.kill()
            service.process.wait(STOP_DEADLINE_S)
        self._stack.close()
        self.cluster.close()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    found = Services(tmp_path_factory.mktemp("units"))
    try:
        yield found
    finally:
        found.close()


def test_a_server_is_started_once_it_serves(services: Services) -> None:
    nodes, cluster = services.nodes, services.cluster
    node = services.start("node", nodes.command(1, "--bootstrap"))
    broker = services.start("broker", cluster.command(cluster.brokers[1]))
    console = services.start("console", [sys.executable, "-P", "-m", "quorum", "console", "--port", "0"])
    # a console starts with or without a cluster
    eventually(lambda: console.told("READY=1"), DEADLINE_S, "the console is started")
    url = console.status.removeprefix("serves: http://").rstrip("/")
    connection = http.client.HTTPConnection(url, timeout=DEADLINE_S)
    connection.request("GET", "/livez")
    assert json.loads(connection.getresponse().read())["live"] is True
    connection.close()
    # a founder alone serves nobody, and says why
    eventually(
        lambda: "has not heard from node 2, node 3" in node.status, DEADLINE_S, "the node says why not"
    )
    assert services.readyz("node") == 503
    code, said = services.health()
    assert (code, "has not heard from node 2, node 3" in said) == (1, True), said
    assert not node.told("READY=1")
    assert not broker.told("READY=1")
    nodes.start_node(2)
    nodes.start_node(3)
    for service in (node, broker):
        eventually(partial(service.told, "READY=1"), DEADLINE_S, f"the {service.name} is started")
        assert services.readyz(service.name) == 200
        assert service.manager.told().count("READY=1") == 1
    assert services.health() == (0, "")


def test_a_server_that_serves_shows_that_its_loop_turns(services: Services) -> None:
    for service in services.services.values():
        before = len(service.manager.told())
        eventually(partial(service.shows_life, before), DEADLINE_S, f"the {service.name} shows life")


def test_servers_do_nothing_that_their_units_refuse(services: Services) -> None:
    producer = KafkaProducer(bootstrap_servers=services.cluster.bootstrap)
    for _ in range(4):
        producer.send("orders", key=b"1", value=bytes(60_000)).get(DEADLINE_S)
    producer.close()
    cleaned = "quorate_broker_cleaner_bytes_written_total"
    eventually(lambda: services.cluster.metric(1, cleaned) > 0, DEADLINE_S, "a round of compaction")
    for service in services.services.values():
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(STOP_DEADLINE_S) == 0, tail(service.output)
        told = service.manager.told()
        assert "STOPPING=1" in told
        assert told.index("READY=1") < told.index("STOPPING=1")
        assert refused(service.trace, unit(service.name), service.state) == [], service.name
