"""What the chart renders fits Kubernetes' schemas, and the configurations in it are ones that servers take.

Nothing here runs Kubernetes. Helm, which takes minutes to build, runs in the tests that are marked long.
"""

from __future__ import annotations

import copy
import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker import load_broker_config
from quorum.admin.client import checked_urls
from quorum.cli.main import build_parser
from quorum.config.node import load_node_config
from tests.support.chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    RENDERED,
    Manifest,
    chart_digest,
    header,
    helm,
    manifests,
    problems,
    rendered,
)
from tests.support.deployments import Secrets, placed
from tests.support.nodes import REPOSITORY

CONTAINERFILE = REPOSITORY / "deploy" / "container" / "Containerfile"
KINDS = ("node", "broker")
MOUNTED = {"/etc/quorate-secrets": "secrets", "/var/lib/quorate": "state"}


@pytest.fixture(scope="module")
def found() -> list[Manifest]:
    return manifests(RENDERED.read_text())


def one(found: list[Manifest], kind: str, name: str) -> Any:
    matches = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(matches) == 1, (kind, name)
    return matches[0]


def container(found: list[Manifest], kind: str) -> Any:
    return one(found, "StatefulSet", f"{RELEASE}-{kind}")["spec"]["template"]["spec"]["containers"][0]


def console(found: list[Manifest]) -> Any:
    return one(found, "Deployment", f"{RELEASE}-console")["spec"]["template"]["spec"]["containers"][0]


def test_what_is_rendered_belongs_to_the_chart() -> None:
    assert RENDERED.read_text().startswith(header()), "run `make kubernetes`"


def test_a_changed_chart_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = chart_digest()
    monkeypatch.setattr("tests.support.chart.CHART", tmp_path)
    (tmp_path / "values.yaml").write_text("nodes: {count: 5}")
    assert chart_digest() != before


def test_what_is_rendered_fits_the_schemas_of_kubernetes(found: list[Manifest]) -> None:
    kinds = {each["kind"] for each in found}
    expected = "ConfigMap Deployment NetworkPolicy PodDisruptionBudget Service StatefulSet"
    assert kinds == set(expected.split())
    assert problems(found) == []


def test_a_mistake_is_found(found: list[Manifest]) -> None:
    wrong = copy.deepcopy(one(found, "StatefulSet", "quorate-node"))
    wrong["spec"]["replica"] = wrong["spec"].pop("replicas")
    assert "replica" in problems([wrong])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_has_a_configuration_that_its_server_takes(
    found: list[Manifest], tmp_path: Path, kind: str
) -> None:
    """Ids come by the number of the pod; the files of the secrets stand where the configuration has them."""
    secrets = Secrets(tmp_path / "secrets", tls=("tls.crt", "tls.key", "ca.crt"))
    text = one(found, "ConfigMap", RELEASE)["data"][f"{kind}.toml"]
    path = tmp_path / f"{kind}.toml"
    path.write_text(placed(text, tmp_path, MOUNTED))
    count = one(found, "StatefulSet", f"{RELEASE}-{kind}")["spec"]["replicas"]
    for number in range(1, count + 1):
        environment: dict[str, str] = {}
        for variable in container(found, kind)["env"]:
            by_index = "pod-index" in str(variable.get("valueFrom"))
            value = str(number) if by_index else variable.get("value", f"{RELEASE}-{kind}-{number}")
            environment[variable["name"]] = value.replace("$(POD)", environment.get("POD", ""))
        if kind == "node":
            config = load_node_config(path, environment)
            assert config.node.id == number
            own = str(config.members[number])
            assert own.startswith(f"{RELEASE}-node-{number}.{RELEASE}-nodes.")
        else:
            broker = load_broker_config(path, environment)
            assert broker.broker.id == number
            own = str(broker.advertised.client)
            assert own.startswith(f"{RELEASE}-broker-{number}.{RELEASE}-brokers.")
    assert secrets.folder.is_dir()


@pytest.mark.parametrize("kind", KINDS)
def test_ports_probes_and_services_agree(found: list[Manifest], kind: str) -> None:
    pod = container(found, kind)
    ports = {each["name"]: each["containerPort"] for each in pod["ports"]}
    toml = one(found, "ConfigMap", RELEASE)["data"][f"{kind}.toml"]
    assert all(f':{port}"' in toml for port in ports.values())
    headless = one(found, "Service", f"{RELEASE}-{kind}s")["spec"]
    assert {each["name"]: each["port"] for each in headless["ports"]} == ports
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    assert one(found, "StatefulSet", f"{RELEASE}-{kind}")["spec"]["serviceName"] == f"{RELEASE}-{kind}s"
    for probe, path in (
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
        ("startupProbe", "/livez"),
    ):
        assert pod[probe]["httpGet"] == {"path": path, "port": "admin", "scheme": "HTTPS"}
    labels = one(found, "StatefulSet", f"{RELEASE}-{kind}")["spec"]["template"]["metadata"]["labels"]
    for each in found:
        selector = each["spec"].get("selector", {}) if each["kind"] == "Service" else None
        if selector and selector["app.kubernetes.io/component"] == kind:
            assert selector.items() <= labels.items()


def test_the_console_asks_every_node(found: list[Manifest]) -> None:
    parsed = build_parser().parse_args(console(found)["args"])
    count = one(found, "StatefulSet", f"{RELEASE}-node")["spec"]["replicas"]
    host = f"{RELEASE}-nodes.{NAMESPACE}.svc.cluster.local"
    nodes = [f"https://{RELEASE}-node-{number}.{host}:8181" for number in range(1, count + 1)]
    assert list(checked_urls(parsed.admin)) == nodes


def test_only_its_own_pod_reaches_the_console(found: list[Manifest]) -> None:
    """It answers with a reader's token and asks for none: nobody in the cluster may dial it."""
    pod = console(found)
    parsed = build_parser().parse_args(pod["args"])
    assert ip_address(parsed.host).is_loopback
    assert "ports" not in pod
    selectors = [each["spec"]["selector"] for each in found if each["kind"] == "Service"]
    assert "console" not in {each["app.kubernetes.io/component"] for each in selectors}
    # what asks whether it lives runs in the pod
    assert pod["env"] == [{"name": "HEALTH_URL", "value": f"http://{parsed.host}:{parsed.port}/livez"}]
    for probe in ("livenessProbe", "readinessProbe"):
        assert f"CMD {json.dumps(pod[probe]['exec']['command'])}" in CONTAINERFILE.read_text()


def test_pods_have_no_rights(found: list[Manifest]) -> None:
    for each in found:
        if each["kind"] not in ("StatefulSet", "Deployment"):
            continue
        pod = each["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for inside in pod["containers"]:
            assert inside["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.long
def test_helm_renders_what_is_kept() -> None:
    helm("lint", "--strict", str(CHART))
    assert RENDERED.read_text() == header() + rendered()


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "absent"),
    [
        (("nodes.count=5", "nodes.storageClass=local", "spread=DoNotSchedule"), ""),
        (("brokers.count=0", "console.enabled=false"), "broker"),
        (("networkPolicy.enabled=false",), "NetworkPolicy"),
        (("nodes.settings.QUORATE_LIMITS_TICK_MS=1000", "image.tag=1", "imagePullSecrets[0].name=x"), ""),
    ],
)
def test_other_values_render_as_well(values: tuple[str, ...], absent: str) -> None:
    found = manifests(rendered(*values))
    assert problems(found) == []
    named = [each for each in found if absent and absent in (each["kind"], each["metadata"]["name"][-6:])]
    assert named == []
