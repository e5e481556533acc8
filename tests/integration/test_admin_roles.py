"""Roles at the admin port: tokens, certificates, and the cookie with which a page of the port itself asks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.local import brokers_in_thread
from quorum.client import AccessEntry, Client, NodeExistsError
from quorum.local.embedded import Ensemble, ensemble_in_thread
from tests.support.certificates import Authority
from tests.support.nodes import eventually
from tests.support.secure_nodes import SecureNodes

DEADLINE_S = 30.0
TOKENS = {role: f"{role}-0123456789abcdef" for role in ("reader", "operator", "admin")}


def tokens_file(path: Path, *more: str) -> Path:
    path.touch(mode=0o600)
    path.write_text("\n".join([*(f"{role} {role} {token}" for role, token in TOKENS.items()), *more]))
    return path


class Answered(NamedTuple):
    status: int
    fields: dict[str, Any]
    cookie: str
    content: bytes


class Port:
    """An admin port, as a script or a page asks it."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.host = f"{host}:{port}"
        self.origin = f"{'http' if tls is None else 'https'}://{self.host}"
        self._tls = tls

    def connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, timeout=DEADLINE_S)
        return http.client.HTTPSConnection(self.host, timeout=DEADLINE_S, context=self._tls)

    def ask(self, method: str, path: str, *, role: str = "", body: object = None, **headers: str) -> Answered:
        sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        if role:
            sent["Authorization"] = f"Bearer {TOKENS[role]}"
        connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            content = answer.read()
            is_json = answer.headers.get_content_type() in ("application/json", "application/problem+json")
            fields = json.loads(content) if is_json else {}
            return Answered(answer.status, fields, answer.headers.get("Set-Cookie", ""), content)
        finally:
            connection.close()

    def begin(self, role: str) -> str:
        """Trade a token for a cookie, as a page does; returns what the browser sends then."""
        answered = self.ask("POST", "/v1/session", role=role, Origin=self.origin)
        assert answered.status == 200, answered
        ((name, morsel),) = SimpleCookie(answered.cookie).items()
        return f"{name}={morsel.value}"


def port_of(url: str) -> Port:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return Port(host, int(port))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokens_file(tmp_path_factory.mktemp("tokens") / "tokens")


@pytest.fixture(scope="module")
def nodes(tokens: Path) -> Iterator[Ensemble]:
    with ensemble_in_thread(1, {"security": {"admin_tokens_file": str(tokens)}}) as running:
        yield running


@pytest.fixture(scope="module")
def port(nodes: Ensemble) -> Port:
    return port_of(nodes.admin_urls[0])


CHANGES: list[tuple[str, str, object, str]] = [
    ("PUT", "/v1/znodes?path=/a&create=true", {"data": None}, "operator"),
    ("POST", "/v1/leader", {"node_id": 1}, "operator"),
    ("POST", "/v1/snapshots", {}, "operator"),
    ("GET", "/v1/snapshots/0.snapshot", None, "admin"),
    ("POST", "/v1/members", {"node_id": 0}, "admin"),
    ("DELETE", "/v1/members?node_id=9", None, "admin"),
    ("POST", "/v1/import", {"step": "open", "source": "zk:2181", "floor": 1}, "admin"),
]


@pytest.mark.parametrize(("method", "path", "body", "needed"), CHANGES)
def test_each_role_may_do_what_it_is_for(
    port: Port, method: str, path: str, body: object, needed: str
) -> None:
    roles = list(TOKENS)
    for role in roles:
        answered = port.ask(method, path, role=role, body=body)
        if roles.index(role) < roles.index(needed):
            assert answered.status == 403
            assert answered.fields["error"].startswith(f"the role {role} does not allow {method} /v1/")
            assert answered.fields["remedy"] == f"ask as somebody with the role {needed}"
        else:
            assert answered.status not in (401, 403)
    assert port.ask("GET", "/v1/status", role="reader").status == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/config/users", "/config/users/root", "/config/users/root/clients/a", "/kafka-acl/Topic/a"),
        *("/kafka-acl-extended/prefixed/Topic/a", "/kafka-acl-changes/a", "/kafka-acl-extended-changes/a"),
        *("/zookeeper", "/zookeeper/config", "/zookeeper/quota/a/zookeeper_limits"),
    ],
)
def test_users_and_access_lists_are_for_admins_also_as_znodes(port: Port, path: str) -> None:
    step = {"op": "create", "path": path, "data": None}
    requests: list[tuple[str, str, object]] = [
        ("PUT", f"/v1/znodes?path={path}&create=true", {"data": None}),
        ("DELETE", f"/v1/znodes?path={path}&version=99", None),
        *(
            ("POST", "/v1/transactions", {"operations": [{"op": "check", "path": "/", "version": -1}, each]})
            for each in (
                {**step, "mode": "persistent_sequential"},
                {"op": "set", "path": path, "data": None, "version": 99},
                {"op": "delete", "path": path, "version": 99},
            )
        ),
    ]
    for method, target, body in requests:
        answered = port.ask(method, target, role="operator", body=body)
        assert answered.status == 403
        told = f"the role operator does not allow {method} {target.partition('?')[0]} of '{path}'"
        assert answered.fields["error"] == told
        assert answered.fields["remedy"] == "ask as somebody with the role admin"
        assert "the role" not in port.ask(method, target, role="admin", body=body).fields.get("error", "")


def test_other_znodes_are_for_operators(port: Port) -> None:
    for path in ("/config", "/config/clients", "/config/users-of-mine", "/zookeepers"):
        answered = port.ask(
            "PUT", f"/v1/znodes?path={path}&create=true", role="operator", body={"data": None}
        )
        assert answered.status == 200, answered
    look = {"operations": [{"op": "check", "path": "/zookeeper", "version": -1}]}
    assert port.ask("POST", "/v1/transactions", role="operator", body=look).status == 200


def test_a_reader_reads_history_past_access_lists_but_no_users(port: Port, nodes: Ensemble) -> None:
    async def write() -> int:
        async with Client(nodes.hosts) as client:
            own = [AccessEntry(31, "digest", "somebody:else")]
            for path in ("/config", "/config/users"):
                with contextlib.suppress(NodeExistsError):
                    await client.create(path)
            for path in ("/config/users/zoe", "/kept"):
                await client.create(path, b"secret", acl=own)
            _, stat = await client.create2("/since")
            return stat.czxid

    def read(path: str) -> str:
        answered = port.ask("GET", path, role="reader")
        assert answered.status == 200
        return answered.content.decode()

    zxid, data = asyncio.run(write()), base64.b64encode(b"secret").decode()
    assert port.ask("GET", "/v1/znodes?path=/kept", role="reader").status == 403
    assert data in read(f"/v1/znodes?path=/kept&as_of_zxid={zxid}")
    assert read(f"/v1/changelog/tree?as_of_zxid={zxid}").count(data) == 1
    assert read("/v1/changelog?from_zxid=1").count(data) == 1
    path = f"/v1/znodes?path=/config/users/zoe&as_of_zxid={zxid}"
    assert port.ask("GET", path, role="reader").status == 404


def test_a_token_counts_as_its_name_in_access_lists(port: Port, nodes: Ensemble) -> None:
    async def create() -> None:
        async with Client(nodes.hosts) as client:
            await client.create("/operators", b"one", acl=[AccessEntry(31, "sasl", "operator")])

    asyncio.run(create())
    path, body = "/v1/znodes?path=/operators", {"data": base64.b64encode(b"two").decode()}
    for role in ("reader", "admin"):
        assert port.ask("GET", path, role=role).status == 403
    denied = port.ask("PUT", path, role="admin", body=body)
    assert denied.status == 403
    assert "sasl:NAME" in denied.fields["remedy"]
    assert port.ask("PUT", path, role="operator", body=body).status == 200
    read = port.ask("GET", f"{path}&acl=true&linearizable=true", role="operator")
    assert base64.b64decode(read.fields["data"]) == b"two"
    assert read.fields["acl"] == [{"scheme": "sasl", "id": "operator", "perms": "rwcda"}]
    below = {"operations": [{"op": "create", "path": "/operators/a", "data": None}]}
    assert port.ask("POST", "/v1/transactions", role="admin", body=below).status == 403
    assert port.ask("POST", "/v1/transactions", role="operator", body=below).status == 200


@pytest.mark.parametrize("role", TOKENS)
def test_a_page_of_the_port_reads_and_changes_with_its_cookie(port: Port, role: str) -> None:
    cookie = port.begin(role)
    assert port.ask("GET", "/v1/session", Cookie=cookie).fields == {"name": role, "role": role}
    answered = port.ask(
        "PUT", "/v1/znodes?path=/p&create=true", body={"data": None}, Cookie=cookie, Origin=port.origin
    )
    assert answered.status == (403 if role == "reader" else 200)
    assert port.ask("DELETE", "/v1/session", Cookie=cookie, Origin=port.origin).status == 200
    assert port.ask("GET", "/v1/session", Cookie=cookie).status == 401


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(port: Port) -> None:
    cookie = port.ask("POST", "/v1/session", role="reader").cookie
    words = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", "max-age=28800"} <= words
    assert "secure" not in words
    # Browsers send a cookie to every port of its host.
    assert cookie.startswith(f"quorate_session_{port.host.rpartition(':')[2]}=")
    assert TOKENS["reader"] not in cookie


OTHERS: list[Mapping[str, str]] = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
]


@pytest.mark.parametrize("headers", OTHERS)
def test_a_page_of_another_site_changes_nothing_whatever_it_proves(
    port: Port, headers: Mapping[str, str]
) -> None:
    cookie = port.begin("admin")
    path = "/v1/znodes?path=/evil&create=true"
    assert port.ask("PUT", path, body={"data": None}, Cookie=cookie, **headers).status == 403
    assert port.ask("PUT", path, body={"data": None}, role="admin", **headers).status == 403
    assert port.ask("POST", "/v1/session", role="admin", **headers).status == 403
    assert port.ask("GET", "/v1/znodes?path=/evil", role="admin").status == 404
    secure = {"Origin": port.origin.replace("http", "https")}
    assert port.ask("PUT", path, body={"data": None}, Cookie=cookie, **secure).status == 403


def test_a_page_must_send_json(port: Port) -> None:
    cookie = port.begin("operator")
    path, page = "/v1/znodes?path=/j&create=true", {"Cookie": cookie, "Origin": port.origin}
    answered = port.ask("PUT", path, body={"data": None}, Content_Type="text/plain", **page)
    assert answered.status == 415
    assert port.ask("PUT", path, body={"data": None}, **page).status == 200


def test_events_take_the_cookie(port: Port) -> None:
    cookie = port.begin("reader")
    connection = port.connect()
    connection.request("GET", "/v1/events?from_zxid=0", headers={"Cookie": cookie})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"id: ")
    connection.close()
    assert port.ask("GET", "/v1/events", Cookie=f"{cookie}x").status == 401


def test_a_session_ends_with_the_token_that_it_was_traded_for(tmp_path: Path) -> None:
    tokens = tokens_file(tmp_path / "tokens")
    with SecureNodes(Authority(tmp_path / "pki"), security={"admin_tokens_file": str(tokens)}) as nodes:
        port = port_of(nodes.admin_url(1))
        cookie = port.begin("operator")
        assert port.ask("GET", "/v1/status", Cookie=cookie).status == 200
        tokens.write_text(f"admin admin {TOKENS['admin']}")
        nodes.reload(1)
        eventually(lambda: port.ask("GET", "/v1/status", Cookie=cookie).status == 401, DEADLINE_S)
        over = port.ask("GET", "/v1/status", Cookie=cookie)
        assert over.fields["error"].startswith("the session is over")
        assert "POST /v1/session" in over.fields["remedy"]
        revoked = port.ask("GET", "/v1/status", role="operator")
        assert revoked.status == 401
        assert revoked.fields["error"].startswith("the token that was sent does not count here")
        assert "security.admin_tokens_file" in revoked.fields["remedy"]
        # A token that was there once is told as one that never was.
        guessed = port.ask("GET", "/v1/status", Authorization="Bearer guessed-0123456789abcdef")
        assert guessed.content == revoked.content
        assert port.ask("GET", "/v1/status").fields["error"] == "this port needs a token"
        basic = port.ask("GET", "/v1/status", Authorization="Basic YTpi").fields
        assert basic["error"] == "this port takes no Authorization but Bearer"
        assert port.ask("GET", "/v1/status", role="admin").status == 200


def test_behind_a_proxy_pages_come_from_https(tokens: Path) -> None:
    security = {"admin_tokens_file": str(tokens), "admin_behind_proxy": True}
    with ensemble_in_thread(1, {"security": security}) as running:
        port = port_of(running.admin_urls[0])
        assert port.ask("POST", "/v1/session", role="admin", Origin=port.origin).status == 403
        page = port.origin.replace("http", "https")
        answered = port.ask("POST", "/v1/session", role="admin", Origin=page)
        assert answered.status == 200
        assert "secure" in answered.cookie.lower()


def test_without_tokens_no_page_changes_anything() -> None:
    with ensemble_in_thread(1) as running:
        port = port_of(running.admin_urls[0])
        path, body = "/v1/znodes?path=/a&create=true", {"data": None}
        answered = port.ask("PUT", path, body=body, Origin=port.origin)
        assert answered.status == 403
        assert answered.fields["error"] == "changes are taken from pages only where the port asks for tokens"
        assert port.ask("PUT", path, body=body).status == 200
        assert port.ask("GET", "/v1/session").fields == {"name": "", "role": "admin"}
        assert port.ask("POST", "/v1/session").status == 409


def test_a_certificate_has_the_role_of_its_subject(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    tokens = tokens_file(tmp_path / "tokens", "alice operator dn:CN=alice")
    security = {"admin_tokens_file": str(tokens), "admin_ssl": True}
    nodes = SecureNodes(authority, security=security)
    try:
        nodes.start_node(1)
        number = nodes.nodes[1].admin_port
        path, body = "/v1/znodes?path=/c&create=true", {"data": None}
        alice = Port("127.0.0.1", number, authority.context("alice"))
        eventually(lambda: alice.ask("GET", "/readyz").status == 200, DEADLINE_S)
        assert alice.ask("GET", "/v1/session").fields == {"name": "alice", "role": "operator"}
        assert alice.ask("PUT", path, body=body, Origin=alice.origin).status == 200
        assert alice.ask("POST", "/v1/members", body={"node_id": 4}).status == 403
        bob = Port("127.0.0.1", number, authority.context("bob"))
        refused = bob.ask("GET", "/v1/session")
        assert refused.status == 401
        assert refused.fields["error"] == "the certificate of 'CN=bob' has no role at this port"
        assert "dn:SUBJECT" in refused.fields["remedy"]
        nobody = Port("127.0.0.1", number, authority.context())
        assert nobody.ask("GET", "/v1/session").status == 401
        answered = nobody.ask("POST", "/v1/session", role="reader", Origin=nobody.origin)
        assert answered.status == 200
        assert "secure" in answered.cookie.lower()
    finally:
        nodes.close()


def test_a_broker_has_roles_and_sessions_too(tokens: Path) -> None:
    with brokers_in_thread(1, settings={"security": {"admin_tokens_file": str(tokens)}}) as running:
        port = port_of(running.admin_urls[0])
        assert port.ask("GET", "/v1/status").status == 401
        cookie = port.begin("reader")
        assert port.ask("GET", "/v1/status", Cookie=cookie).status == 200
        assert port.ask("DELETE", "/v1/session", Cookie=cookie, Origin="http://evil.example").status == 403
        assert port.ask("DELETE", "/v1/session", Cookie=cookie, Origin=port.origin).status == 200
        assert port.ask("GET", "/v1/status", Cookie=cookie).status == 401
