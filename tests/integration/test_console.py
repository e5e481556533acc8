"""`quorate console` over HTTP: what it answers, what it refuses, and its life as a process."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from quorum.console import files
from quorum.console.server import ConsoleOptions, serving
from quorum.local import Ensemble, ensemble_in_thread, in_thread
from tests.support.certificates import Authority
from tests.support.nodes import eventually, server_environment

WAIT_S = 30.0
STATIC = Path(files.__file__).parent / "static"
#: of libraries.js, as it was made (quorum/console/static/LIBRARIES.md)
LIBRARIES_SHA256 = "76052cdaee9d58e4f31f3658ebab57ad3b67414d34d9f8b7cb4b03c7feebbcad"
LIBRARIES_BYTES_MAX = 35_000
STATIC_BYTES_MAX = 60_000


class Got(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def fields(self) -> Any:
        return json.loads(self.body)


class Console:
    """Asks a console."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.own = f"http://{self.host}:{self.port}"

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Got:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)
        try:
            sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, sent, dict(headers or {}))
            answer = connection.getresponse()
            return Got(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Got:
        return self.ask("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})

    @property
    def proof(self) -> dict[str, str]:
        token = self.get("/api/session").fields["token"]
        return {"Quorate-Token": token, "Content-Type": "application/json"}

    def act(self, name: str, **fields: object) -> Got:
        return self.ask("POST", f"/api/actions/{name}", fields, {**self.proof, "Origin": self.own})


@pytest.fixture(scope="module")
def quorum() -> Iterator[Ensemble]:
    with ensemble_in_thread(1) as running:
        yield running


@pytest.fixture(scope="module")
def console(quorum: Ensemble) -> Iterator[Console]:
    with in_thread(lambda: serving(ConsoleOptions(quorum.admin_urls, port=0)), "console") as (running, _):
        yield Console(running.url)


@pytest.fixture(scope="module")
def zookeeper(quorum: Ensemble) -> Iterator[KazooClient]:
    client = KazooClient(quorum.hosts)
    client.start(WAIT_S)
    yield client
    client.stop()
    client.close()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- every answer --------------------------------------------------------------------------------------------


def test_every_answer_carries_a_strict_policy(console: Console) -> None:
    paths = ("/", "/console.js", "/api/session", "/api/nothing", "/nothing", "/favicon.ico", "/livez")
    answers = [console.get(path) for path in paths]
    answers += [
        console.ask("POST", "/"),
        console.ask("POST", "/api/actions/set-znode"),
        console.ask("PUT", "/"),
    ]
    answers.append(console.get("/", Host="evil.example"))
    assert {each.status for each in answers} == {200, 403, 404, 421}
    for each in answers:
        policy = each.headers["Content-Security-Policy"].split("; ")
        assert "default-src 'none'" in policy
        assert {"script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(policy)
        assert "unsafe" not in each.headers["Content-Security-Policy"]
        assert each.headers["X-Content-Type-Options"] == "nosniff"
        assert each.headers["Referrer-Policy"] == "no-referrer"


def test_what_is_no_http_gets_the_policy_too(console: Console) -> None:
    for sent in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection((console.host, console.port), WAIT_S) as connection:
            connection.sendall(sent)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 400
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert json.loads(answer.read())["status"] == 400


def test_errors_are_problems(console: Console) -> None:
    for got in (console.get("/api/nothing"), console.get("/", Host="evil.example"), console.ask("POST", "/")):
        assert got.headers["Content-Type"].startswith("application/problem+json")
        assert got.fields["status"] == got.status
        assert got.fields["detail"]


def test_a_foreign_host_is_misdirected(console: Console) -> None:
    assert console.get("/api/session", Host="evil.example").status == 421
    assert console.get("/api/session", Host=f"evil.example:{console.port}").status == 421
    for host in (f"localhost:{console.port}", "127.0.0.1", f"[::1]:{console.port}"):
        assert console.get("/api/session", Host=host).status == 200, host


def test_pages_of_other_sites_get_no_answer(console: Console) -> None:
    assert console.get("/api/session", Sec_Fetch_Site="cross-site").status == 403
    # A link in a letter leads to the page all the same.
    assert console.get("/", Sec_Fetch_Site="cross-site").status == 200


# -- reads ---------------------------------------------------------------------------------------------------


def test_session_and_overview_say_what_the_page_needs(console: Console) -> None:
    session = console.get("/api/session").fields
    assert session["read_only"] is False
    assert session["records"] is True
    assert len(session["token"]) > 30
    overview = console.get("/api/overview").fields
    assert session["cluster_id"] == overview["cluster_id"]
    assert overview["verdict"] == "healthy"
    assert overview["check"] == ""
    assert [each["check"] for each in overview["findings"]] == ["voter-lone"]
    (node,) = overview["nodes"]
    assert (node["id"], node["role"]) == (1, "leader")
    assert node["zxid"] == str(int(node["zxid"]))


def test_events_tell_what_changed(console: Console, zookeeper: KazooClient) -> None:
    connection = http.client.HTTPConnection(console.host, console.port, timeout=WAIT_S)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    first = json.loads(answer.readline().removeprefix(b"data: "))
    assert first["paths"] is None
    zookeeper.create("/told")
    while True:
        line = answer.readline()
        if line.startswith(b"data: ") and "/told" in (json.loads(line[6:])["paths"] or ()):
            break
    connection.close()


def test_a_deleted_znode_shows_its_last_value(console: Console, zookeeper: KazooClient) -> None:
    zookeeper.create("/gone", b"first")
    zookeeper.set("/gone", b"last words")
    created = zookeeper.exists("/gone").czxid
    zookeeper.delete("/gone")

    def deleted() -> Any:
        found = console.get("/api/znodes?path=/gone").fields
        assert found["found"], found
        return found

    found = eventually(deleted, WAIT_S, "the deletion is in the history")
    assert base64.b64decode(found["data"]) == b"last words"
    changes = console.get("/api/znodes/history?path=/gone").fields["items"]
    assert [each["op"] for each in changes] == ["d", "u", "c"]
    assert found["deleted"] == changes[0]["zxid"]
    then = console.get(f"/api/znodes?path=/gone&as_of={created}").fields
    assert (base64.b64decode(then["data"]), then["deleted"]) == (b"first", None)
    children = console.get("/api/znodes/children?path=/&deleted=true").fields["items"]
    assert {"name": "gone", "path": "/gone", "deleted": found["deleted"]} in children
    assert console.get("/api/znodes?path=/never").fields == {"path": "/never", "found": False}


def test_a_znode_shows_its_access_list(console: Console) -> None:
    found = console.get("/api/znodes?path=/").fields
    assert found["acl"] == [{"scheme": "world", "id": "anyone", "perms": "rwcda"}]
    assert found["stat"]["mzxid"] == str(int(found["stat"]["mzxid"]))


def test_children_come_in_pages_and_are_searched_on_the_server(
    console: Console, zookeeper: KazooClient
) -> None:
    zookeeper.ensure_path("/many")
    for number in range(205):
        zookeeper.create(f"/many/n{number:03d}")
    first = console.get("/api/znodes/children?path=/many").fields
    assert len(first["items"]) == 200
    second = console.get(f"/api/znodes/children?path=/many&after={first['next_after']}").fields
    assert [each["name"] for each in second["items"]] == [f"n{number:03d}" for number in range(200, 205)]
    assert second["next_after"] is None
    found = console.get("/api/znodes/children?path=/many&search=N20").fields["items"]
    assert [each["name"] for each in found] == [f"n{number}" for number in range(200, 205)]


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/api/znodes", 400, "lacks the field path"),
        ("/api/znodes?path=a", 400, "path = 'a' is not of the form"),
        ("/api/znodes?path=/&as_of=x", 400, "as_of = 'x' is not a whole number"),
        ("/api/znodes?path=/&as_of=999999999", 404, "this node has applied"),
        ("/api/overview?at=1", 400, "unknown field 'at'"),
    ],
)
def test_wrong_queries_are_refused_with_a_sentence(
    console: Console, path: str, status: int, problem: str
) -> None:
    got = console.get(path)
    assert got.status == status
    assert problem in got.fields["detail"]
    assert got.fields["remedy"]


# -- changes -------------------------------------------------------------------------------------------------


def test_a_change_is_previewed_and_carried_out(console: Console, zookeeper: KazooClient) -> None:
    zookeeper.create("/edited", b"one")
    asked = {"path": "/edited", "data": encoded(b"two"), "version": 0}
    preview = console.act("set-znode", preview=True, **asked)
    assert "version 0 becomes 1" in preview.fields["preview"]["text"]
    assert zookeeper.get("/edited")[0] == b"one"
    assert console.act("set-znode", **asked).status == 200
    assert zookeeper.get("/edited")[0] == b"two"


def test_a_conflict_names_both_versions_and_the_value_of_now(
    console: Console, zookeeper: KazooClient
) -> None:
    zookeeper.create("/contested", b"mine")
    zookeeper.set("/contested", b"theirs")
    for preview in ({"preview": True}, {}):
        got = console.act("set-znode", path="/contested", data=encoded(b"new"), version=0, **preview)
        assert got.status == 409
        assert got.fields["read_version"] == 0
        assert got.fields["current"] == {"version": 1, "data": encoded(b"theirs")}
    assert zookeeper.get("/contested")[0] == b"theirs"


def test_a_deletion_wants_the_name(console: Console, zookeeper: KazooClient) -> None:
    zookeeper.create("/doomed")
    assert console.act("delete-znode", path="/doomed", confirm="/other").status == 400
    assert console.act("delete-znode", path="/doomed").status == 400
    assert zookeeper.exists("/doomed")
    assert console.act("delete-znode", path="/doomed", confirm="/doomed").status == 200
    assert not zookeeper.exists("/doomed")
    assert console.act("create-znode", path="/doomed", data=encoded(b"again")).status == 200
    assert zookeeper.get("/doomed")[0] == b"again"
    assert console.act("create-znode", path="/doomed", data=None).status == 409


def test_a_change_without_proof_is_refused(console: Console, zookeeper: KazooClient) -> None:
    zookeeper.create("/kept", b"kept")
    body = {"path": "/kept", "data": encoded(b"x"), "version": -1}
    proof = console.proof
    no_token = {"Content-Type": "application/json"}
    for headers, status in (
        (no_token, 403),
        ({**proof, "Quorate-Token": "x" * 43}, 403),
        ({**proof, "Origin": "http://evil.example"}, 403),
        ({**proof, "Origin": "null"}, 403),
        ({**proof, "Content-Type": "text/plain"}, 415),
        ({**proof, "Host": "evil.example"}, 421),
    ):
        assert console.ask("POST", "/api/actions/set-znode", body, headers).status == status, headers
    assert zookeeper.get("/kept")[0] == b"kept"
    for body_sent in (b"{", b"[]", b"{}", b'{"path": 1}', b'{"path": "/kept", "version": 0, "data": "?"}'):
        assert console.ask("POST", "/api/actions/set-znode", body_sent, proof).status == 400
    assert console.act("nothing").status == 404
    assert zookeeper.get("/kept")[0] == b"kept"


def test_a_console_that_only_reads_refuses_every_change(quorum: Ensemble) -> None:
    options = ConsoleOptions(quorum.admin_urls, port=0, read_only=True)
    with in_thread(lambda: serving(options), "console") as (running, _):
        console = Console(running.url)
        assert console.get("/api/session").fields["read_only"] is True
        for name in (*console.get("/api/actions").fields["items"], "nothing"):
            assert console.act(name).status == 403
        assert console.ask("POST", "/").status == 403


@contextlib.contextmanager
def process(*words: str, scheme: str = "http") -> Iterator[tuple[Console, subprocess.Popen[str]]]:
    """Run the command, and yield it once it serves."""
    command = [sys.executable, "-m", "quorum", *words, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=server_environment()) as running:
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line.startswith(f"console: {scheme}://")
            yield Console(line.removeprefix("console: ").strip()), running
        finally:
            running.kill()


def test_it_has_no_rights_of_its_own(tmp_path: Path) -> None:
    """With a reader's token it changes nothing, unless the browser sends one that may."""
    tokens = {name: f"{name}-{'x' * 40}" for name in ("looker", "ann", "bob")}
    file = tmp_path / "tokens"
    file.touch(mode=0o600)
    rows = (("looker", "reader"), ("ann", "operator"), ("bob", "operator"))
    file.write_text("".join(f"{name} {role} {tokens[name]}\n" for name, role in rows))
    own = tmp_path / "own"
    own.touch(mode=0o600)
    own.write_text(tokens["looker"])
    with ensemble_in_thread(1, {"security": {"admin_tokens_file": str(file)}}) as quorum:
        words = ("--token-file", str(own), "console", "--admin", quorum.admin_urls[0])
        with process(*words) as (console, _):
            assert console.get("/api/overview").fields["verdict"] == "healthy"

            def act(name: str, token: str | None, **body: object) -> Got:
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                return console.ask("POST", f"/api/actions/{name}", body, {**console.proof, **headers})

            refused = act("create-znode", None, path="/made", data=None)
            assert refused.status == 403
            assert "does not allow" in refused.fields["detail"]
            assert act("create-znode", tokens["ann"], path="/made", data=None).status == 200
            assert act("create-znode", "wrong", path="/other", data=None).status == 401
            client = KazooClient(quorum.hosts)
            client.start(WAIT_S)
            client.create("/anns", b"one", acl=[ACL(31, Id("sasl", "ann"))])
            client.stop()
            client.close()
            change = {"path": "/anns", "data": encoded(b"two"), "version": 0}
            denied = act("set-znode", tokens["bob"], **change)
            assert denied.status == 403
            assert "sasl:NAME" in denied.fields["remedy"]
            assert act("set-znode", tokens["ann"], **change).status == 200
            read = console.get("/api/znodes?path=/anns", Authorization=f"Bearer {tokens['ann']}")
            assert base64.b64decode(read.fields["data"]) == b"two"
            assert console.get("/api/znodes?path=/anns").status == 403


def test_runs_are_read_from_their_folder(tmp_path: Path, quorum: Ensemble) -> None:
    run = {
        "seed": 7,
        "workloads": ["registers"],
        "began_ns": 10**9,
        "ended_ns": 11 * 10**9,
        "faults": [{"nemesis": "kill", "target": "node-1", "started_ns": 2 * 10**9, "stopped_ns": 3 * 10**9}],
    }
    for name, text in (("a", json.dumps(run)), ("b", "{"), ("c", None)):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "run.json").write_text(text)
    options = ConsoleOptions(quorum.admin_urls, port=0, results=tmp_path)
    with in_thread(lambda: serving(options), "console") as (running, _):
        whole = Console(running.url).get("/api/runs").fields
        third, second, first = whole["items"]
        assert "has no run.json" in third["problem"]
        assert "run.json cannot be read" in second["problem"]
        assert (first["seed"], first["seconds"], first["problem"]) == ("7", 10.0, None)
        assert first["faults"][0] == {
            "nemesis": "kill",
            "target": "node-1",
            "bite": "",
            "started": 1.0,
            "stopped": 2.0,
            "ready": None,
        }
        assert (first["kind"], first["verdicts"]) == ("chaos", None)
        checks = [{"check": "lost", "state": "bad", "judged": 7, "problems": ["key 3"]}]
        verdicts = {"failed": True, "missing": [], "checks": checks}
        (tmp_path / "a" / "verdicts.json").write_text(json.dumps(verdicts))
        *_, first = Console(running.url).get("/api/runs").fields["items"]
        assert first["verdicts"] == verdicts


def test_answers_of_jobs_are_among_the_runs(tmp_path: Path, quorum: Ensemble) -> None:
    bar = {"lane": "broker 1", "kind": "registered", "from_ms": 5, "until_ms": 9, "label": "generation 4"}
    job = {
        "job": "flapping",
        "began_ms": 1000,
        "ended_ms": 3500,
        "finding": False,
        "rows": 2,
        "columns": ["broker", "bounces"],
        "first_rows": [["1", None]],
        "bars": [bar],
    }
    (tmp_path / "flapping").mkdir()
    (tmp_path / "flapping" / "_job.json").write_text(json.dumps(job))
    options = ConsoleOptions(quorum.admin_urls, port=0, results=tmp_path)
    with in_thread(lambda: serving(options), "console") as (running, _):
        (found,) = Console(running.url).get("/api/runs").fields["items"]
        assert (found["kind"], found["seconds"], found["bars"]) == ("job", 2.5, [bar])
        assert (found["rows"], found["first_rows"]) == (2, [["1", None]])


# -- its life ------------------------------------------------------------------------------------------------


def test_it_starts_without_a_cluster_and_ends_soon() -> None:
    with process("console", "--admin", "http://127.0.0.1:9") as (console, running):
        assert console.get("/livez").status == 200
        overview = console.get("/api/overview").fields
        assert (overview["verdict"], overview["check"]) == ("error", "no-quorum")
        # Also while somebody listens.
        connection = http.client.HTTPConnection(console.host, console.port, timeout=WAIT_S)
        connection.request("GET", "/api/events")
        connection.getresponse().readline()
        begun_s = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT_S) == 0
        assert time.monotonic() - begun_s < 5
        assert running.stdout is not None
        assert running.stdout.read() == ""
        connection.close()


def test_a_port_that_is_taken_is_named(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    from quorum.cli.main import main

    assert main(["console", "--port", str(console.port)]) == 1
    said = capsys.readouterr().err
    assert f"--port {console.port}: cannot listen on 127.0.0.1" in said
    assert "choose another --port" in said
    assert main(["console", "--port", "70000"]) == 2
    assert "--port 70000 is out of range" in capsys.readouterr().err
    for wrong in ("127.0.0.1", "127.0.0.1:9092,x:0", ""):
        assert main(["console", "--bootstrap", wrong]) == 2
        told = capsys.readouterr().err
        assert "--bootstrap" in told and "remedy: give HOST:PORT of brokers, with commas between" in told
    assert main(["console", "--host", "0.0.0.0", "--cert", "/nowhere", "--key", "/nowhere"]) == 2
    assert "--cert '/nowhere': cannot be read" in capsys.readouterr().err
    assert main(["console", "--cert", "/nowhere"]) == 2
    assert "--cert and --key need each other" in capsys.readouterr().err
    assert main(["console", "--results", "/nowhere"]) == 2
    assert "--results /nowhere is no folder" in capsys.readouterr().err


def test_off_loopback_it_serves_by_https_with_its_certificate(tmp_path: Path, quorum: Ensemble) -> None:
    certificate, key = Authority(tmp_path / "pki").issue("console")
    options = ConsoleOptions(quorum.admin_urls, port=0, certificate=(certificate, key))
    trust = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.pem"))
    with in_thread(lambda: serving(options), "console") as (running, _):
        assert running.url.startswith("https://127.0.0.1:")
        with urllib.request.urlopen(f"{running.url}api/overview", context=trust) as answer:
            assert json.load(answer)["verdict"] == "healthy"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    # All addresses of the machine are none of loopback.
    words = ("console", "--admin", quorum.admin_urls[0], "--host", "0.0.0.0")
    with process(*words, "--cert", str(certificate), "--key", str(key), scheme="https") as (found, _):
        url = f"https://127.0.0.1:{found.port}/livez"
        with urllib.request.urlopen(url, context=trust) as answer:
            assert answer.status == 200


# -- its files -----------------------------------------------------------------------------------------------


def test_the_libraries_are_what_was_reviewed_and_small() -> None:
    libraries = (STATIC / "libraries.js").read_bytes()
    assert hashlib.sha256(libraries).hexdigest() == LIBRARIES_SHA256
    assert len(gzip.compress(libraries)) < LIBRARIES_BYTES_MAX
    assert sum(len(gzip.compress(each.read_bytes())) for each in STATIC.iterdir()) < STATIC_BYTES_MAX


def test_files_load_nothing_from_elsewhere(console: Console) -> None:
    for each in STATIC.iterdir():
        if each.suffix in (".html", ".js", ".css"):
            text = each.read_text().replace("http://www.w3.org/", "")
            assert "http://" not in text and "https://" not in text, each.name
        if each.suffix == ".html":
            assert "<style" not in text and " style=" not in text and "onclick" not in text.lower()
