"""Tokens of the admin port: which request needs which, and who does not start without them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from broker.config.broker import broker_config
from broker.local import brokers_in_thread
from quorum.config.node import node_config
from quorum.errors import ConfigError
from quorum.local.embedded import Ensemble, ensemble_in_thread
from tests.support.nodes import eventually

DEADLINE_S = 30.0
OPERATE = "operate-0123456789abcdef"
READ = "read-0123456789abcdef"


def secret_file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokens")
    secret_file(made, "operate", OPERATE)
    secret_file(made, "read", READ)
    return made


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Ensemble]:
    security: dict[str, object] = {
        "admin_operate_token_file": str(folder / "operate"),
        "admin_read_token_file": str(folder / "read"),
    }
    with ensemble_in_thread(1, {"security": security}) as running:
        yield running


def ask(url: str, method: str, path: str, authorization: str = "") -> tuple[int, str | None]:
    """Status, and how to prove oneself."""
    headers = {"Content-Type": "application/json"}
    if authorization:
        headers["Authorization"] = authorization
    data = b'{"data": null}' if method in ("PUT", "POST") else None
    try:
        with urlopen(Request(url + path, data, headers, method=method), timeout=DEADLINE_S) as answer:
            return answer.status, None
    except HTTPError as error:
        with error:
            return error.code, error.headers.get("WWW-Authenticate")


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_health_needs_no_token(node: Ensemble, path: str) -> None:
    assert ask(node.admin_urls[0], "GET", path) == (200, None)


@pytest.mark.parametrize("path", ["/metrics", "/v1/status", "/v1/changelog?from_zxid=0", "/v1/none"])
@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer x", f"Basic {READ}", READ, f"Bearer {READ}x"]
)
def test_all_else_needs_one_whether_it_is_there_or_not(node: Ensemble, path: str, authorization: str) -> None:
    assert ask(node.admin_urls[0], "GET", path, authorization) == (401, "Bearer")


def test_the_token_of_readers_reads_and_changes_nothing(node: Ensemble) -> None:
    assert ask(node.admin_urls[0], "GET", "/v1/status", f"Bearer {READ}") == (200, None)
    assert ask(node.admin_urls[0], "PUT", "/v1/znodes?path=/a&create=true", f"Bearer {READ}") == (403, None)
    assert ask(node.admin_urls[0], "GET", "/v1/znodes?path=/a", f"Bearer {READ}") == (404, None)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_snapshot_is_for_operators_alone(node: Ensemble, method: str) -> None:
    url = node.admin_urls[0]
    assert ask(url, "POST", "/v1/snapshots", f"Bearer {READ}") == (403, None)
    asked = Request(
        f"{url}/v1/snapshots",
        b"{}",
        {"Content-Type": "application/json", "Authorization": f"Bearer {OPERATE}"},
    )
    with urlopen(asked, timeout=DEADLINE_S) as answer:
        assert answer.status == 202
    listing = Request(f"{url}/v1/snapshots", headers={"Authorization": f"Bearer {OPERATE}"})

    def names() -> list[str]:
        with urlopen(listing, timeout=DEADLINE_S) as listed:
            return [each["name"] for each in json.load(listed)["items"]]

    path = "/v1/snapshots/" + eventually(names, DEADLINE_S)[-1]
    assert ask(url, method, path, f"Bearer {READ}") == (403, None)
    assert ask(url, method, "/v1/snapshots/0.snapshot", f"Bearer {READ}") == (403, None)
    assert ask(url, method, path, f"Bearer {OPERATE}") == (200, None)


def test_the_token_of_operators_does_everything(node: Ensemble) -> None:
    assert ask(node.admin_urls[0], "GET", "/v1/status", f"bearer  {OPERATE}") == (200, None)
    assert ask(node.admin_urls[0], "PUT", "/v1/znodes?path=/b&create=true", f"Bearer {OPERATE}") == (
        200,
        None,
    )
    assert ask(node.admin_urls[0], "DELETE", "/v1/znodes?path=/b", f"Bearer {OPERATE}") == (200, None)


def test_the_command_line_reads_its_token_from_a_file(node: Ensemble, folder: Path) -> None:
    def status(*options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "quorum",
            *options,
            "changelog",
            "dump",
            "--admin",
            node.admin_urls[0],
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert "zxid 0 " in status("--token-file", str(folder / "read")).stdout
    assert status().returncode == 1
    missing = status("--token-file", str(folder / "none"))
    assert missing.returncode == 2
    assert "--token-file" in missing.stderr


def test_a_broker_asks_for_tokens_too(folder: Path) -> None:
    files = {f"admin_{name}_token_file": str(folder / name) for name in ("operate", "read")}
    with brokers_in_thread(1, settings={"security": files}) as running:
        (url,) = running.admin_urls
        assert ask(url, "GET", "/readyz") == (200, None)
        assert ask(url, "GET", "/v1/status") == (401, "Bearer")
        assert ask(url, "GET", "/metrics", f"Bearer {READ}") == (200, None)


def config_with(kind: str, folder: Path, admin: str, **security: object) -> None:
    secret = secret_file(folder, "peer.secret", "0123456789abcdef")
    sections: dict[str, dict[str, object]] = {
        "listen": {"admin": admin},
        "security": {"peer_secret_file": secret, **security},
    }
    if kind == "broker":
        broker_config({"broker": {"id": 1, "data_dir": "data"}, **sections}, folder)
        return
    node = {"id": 1, "cluster": "c", "data_dir": "data"}
    node_config({"node": node, "members": {"1": "127.0.0.1:2281"}, **sections}, folder)


either = pytest.mark.parametrize("kind", ["node", "broker"])


@either
@pytest.mark.parametrize("given", [(), ("operate",), ("operate", "read"), ("operate", "proxy"), ("proxy",)])
def test_off_loopback_tokens_and_a_proxy_are_needed(kind: str, folder: Path, given: tuple[str, ...]) -> None:
    security: dict[str, object] = {
        f"admin_{name}_token_file": str(folder / name) for name in ("operate", "read") if name in given
    }
    if "proxy" in given:
        security["admin_behind_proxy"] = True
    with pytest.raises(ConfigError) as caught:
        config_with(kind, folder, "0.0.0.0:8181", **security)
    assert caught.value.problems[0].field == "listen.admin"


@either
def test_with_all_of_them_it_starts_off_loopback(kind: str, folder: Path) -> None:
    files = {f"admin_{name}_token_file": str(folder / name) for name in ("operate", "read")}
    config_with(kind, folder, "0.0.0.0:8181", admin_behind_proxy=True, **files)
    config_with(kind, folder, "localhost:8181")
    config_with(kind, folder, "[::1]:8181")


@either
def test_one_token_alone_and_one_that_everybody_reads_are_refused(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(kind, folder, "127.0.0.1:8181", admin_read_token_file=str(folder / "read"))
    assert caught.value.problems[0].field == "security.admin_operate_token_file"
    open_file = tmp_path / "open"
    open_file.write_text(READ)
    open_file.chmod(0o644)
    files = {f"admin_{name}_token_file": str(open_file) for name in ("operate", "read")}
    with pytest.raises(ConfigError) as caught:
        config_with(kind, folder, "127.0.0.1:8181", **files)
    assert "is open to every user" in caught.value.problems[0].problem
