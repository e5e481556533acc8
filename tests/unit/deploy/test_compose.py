"""The compose file, the container file and what they mount fit together.

No container runs here: tests have no runtime, and no registry to take Prometheus and Grafana from.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.config.broker import load_broker_config
from quorum.admin.client import checked_urls
from quorum.cli.main import build_parser
from quorum.config.node import load_node_config
from tests.support.deployments import placed
from tests.support.nodes import REPOSITORY
from tests.support.observability import promtool

COMPOSE = REPOSITORY / "deploy" / "compose"
CONTAINERFILE = REPOSITORY / "deploy" / "container" / "Containerfile"
SERVERS = [f"{kind}-{number}" for kind in ("node", "broker") for number in (1, 2, 3)]
MOUNTED = {"/etc/quorate/secrets": "secrets", "/var/lib/quorate": "state"}


def composed() -> dict[str, Any]:
    found = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """{path in the container: volume, or path beside the compose file}."""
    return {each.split(":")[1]: each.split(":")[0] for each in service.get("volumes", [])}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What secrets.sh makes, with the certificates of its own names."""
    folder = tmp_path_factory.mktemp("compose")
    for name in ("secrets", "monitoring"):
        (folder / name).mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for _ in range(2):
        subprocess.run(
            ["sh", COMPOSE / "secrets.sh", folder / "secrets", folder / "monitoring"],
            check=True,
            env={**os.environ, "PATH": path, "SECRETS_USER": ""},
        )
    return folder


def test_secrets_are_made_once_and_for_their_readers_alone(secrets: Path) -> None:
    made = {each.name: each.stat().st_mode & 0o777 for each in (secrets / "secrets").iterdir()}
    assert set(made) == {
        *("peer.secret", "reader.token", "admin.tokens", "ca.pem", "server.pem", "server.key", "done"),
    }
    assert {made[name] for name in ("peer.secret", "reader.token", "admin.tokens", "server.key")} == {0o600}
    shown = {each.name: each.read_bytes() for each in (secrets / "monitoring").iterdir()}
    assert set(shown) == {"reader.token", "ca.pem"}
    assert shown["reader.token"] == (secrets / "secrets" / "reader.token").read_bytes()


@pytest.mark.parametrize("name", SERVERS)
def test_servers_take_their_configurations(secrets: Path, tmp_path: Path, name: str) -> None:
    service, kind, number = composed()["services"][name], *name.split("-")
    parsed = build_parser().parse_args(service["command"])
    assert mounts(service)[str(parsed.config)] == f"./{kind}.toml"
    path = tmp_path / f"{kind}.toml"
    path.write_text(placed((COMPOSE / f"{kind}.toml").read_text(), secrets, MOUNTED))
    environment = {key: str(value) for key, value in service["environment"].items()}
    if kind == "node":
        config = load_node_config(path, environment)
        assert config.node.id == int(number)
        assert {key: member.host for key, member in config.members.items()} == {
            each: f"node-{each}" for each in (1, 2, 3)
        }
        admin, hosts = config.listen.admin, config.security.admin_hosts
    else:
        broker = load_broker_config(path, environment)
        assert broker.broker.id == int(number)
        assert broker.listen.client is not None
        # clients dial the same port inside and outside
        port = broker.listen.client.port
        assert str(broker.advertised.client) == f"{name}:{port}"
        assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
        admin, hosts = broker.listen.admin, broker.security.admin_hosts
    assert name in hosts
    assert environment["HEALTH_URL"] == f"https://127.0.0.1:{admin.port}/readyz"


def test_what_is_mounted_exists_and_volumes_are_declared() -> None:
    found = composed()
    used = set()
    for service in found["services"].values():
        for source in mounts(service).values():
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source
            else:
                used.add(source)
    assert used == set(found["volumes"])


def test_ports_are_published_on_loopback_alone() -> None:
    published = [port for service in composed()["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.rsplit(":", 1)[0] for port in published}) == len(published)


def test_the_servers_can_do_without_rights_and_a_writable_root() -> None:
    services = composed()["services"]
    for name in (*SERVERS, "console"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]


def test_the_console_asks_every_node() -> None:
    parsed = build_parser().parse_args(composed()["services"]["console"]["command"])
    nodes = [f"https://{name}:8181" for name in SERVERS if name.startswith("node")]
    assert list(checked_urls(parsed.admin)) == nodes


def test_prometheus_asks_every_server_and_has_every_rule() -> None:
    code, said = promtool("check", "config", "--syntax-only", COMPOSE / "prometheus.yml")
    assert code == 0, said
    asked = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    targets = {each for job in asked["scrape_configs"] for each in job["static_configs"][0]["targets"]}
    assert targets == {f"node-{each}:8181" for each in (1, 2, 3)} | {
        f"broker-{each}:9292" for each in (1, 2, 3)
    }
    mounted = mounts(composed()["services"]["prometheus"])
    rules = {Path(each) for each in asked["rule_files"]}
    assert {each.parent for each in rules} == {Path("/etc/prometheus/rules")}
    folder = COMPOSE / mounted["/etc/prometheus/rules"]
    assert {each.name for each in rules} == {each.name for each in folder.glob("*.yml")}
    files = {job["authorization"]["credentials_file"] for job in asked["scrape_configs"]}
    assert files == {"/etc/prometheus/quorate/reader.token"}


def instructions() -> list[tuple[str, str]]:
    """(word, what follows) of every line of the container file."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if line and line[0] != "#"]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def test_the_container_file_copies_what_there_is_and_ends_without_root() -> None:
    found = instructions()
    stages = [index for index, (word, _) in enumerate(found) if word == "FROM"]
    assert len(stages) == 2
    copied = [rest.split()[:-1] for word, rest in found if word == "COPY" and "--from" not in rest]
    for source in (each for group in copied for each in group):
        assert (REPOSITORY / source).exists(), source
    last = dict(found[stages[-1] :])
    assert last["USER"] == "10001:10001"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert ast.literal_eval(last["ENTRYPOINT"]) == ["/opt/quorate/bin/quorate"]
    # every package of the wheel is copied
    packages = re.search(r"^packages = (\[.*\])$", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages is not None
    assert set(ast.literal_eval(packages[1])) <= {each for group in copied for each in group}


@pytest.mark.long
def test_the_compose_file_fits_the_specification() -> None:
    """The schema comes with a module of Go that Docker Compose is made of."""
    module = "github.com/compose-spec/compose-go/v2@v2.9.0"
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, text=True, check=True
    )
    schema = json.loads((Path(json.loads(done.stdout)["Dir"]) / "schema" / "compose-spec.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert [each.message for each in validator.iter_errors(composed())] == []
    wrong = composed()
    wrong["services"]["node-1"]["imgae"] = "x"
    assert len(list(validator.iter_errors(wrong))) == 1
