"""How clients prove themselves to nodes: certificates and passwords, by unchanged clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, InvalidACLError, NoAuthError, SessionClosedRequireSaslError
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, Id

from quorum.admin.client import send
from quorum.config.sasl_users import user_line
from tests.support.certificates import Authority
from tests.support.nodes import eventually
from tests.support.secure_nodes import SecureNodes, secure_kazoo
from tests.support.zookeeper import four_letter_word

WAIT_S = 20.0
USERS = {"alice": "secret", "root": "toor", "super": "no"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki") / "ours")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("users") / "users.digest"
    file.touch(mode=0o600)
    write(file, USERS)
    return file


def write(file: Path, users: dict[str, str]) -> None:
    file.write_text("".join(f"{user_line(name, password)}\n" for name, password in users.items()))


@pytest.fixture(scope="module")
def nodes(authority: Authority, users: Path) -> Iterator[SecureNodes]:
    security = {"sasl_users_file": str(users), "super_user": "root", "x509_super_user": "CN=ops"}
    with SecureNodes(authority, nodes=3, tls={"client_auth": "want"}, security=security) as running:
        yield running


class Clients:
    """Clients that are started, and stopped at the end."""

    def __init__(self, nodes: SecureNodes, authority: Authority) -> None:
        self._nodes = nodes
        self._authority = authority
        self._started: list[KazooClient] = []

    def start(self, client: KazooClient) -> KazooClient:
        self._started.append(client)
        client.start(WAIT_S)
        return client

    def begin(self, client: KazooClient) -> KazooClient:
        """Start a client that may never be connected."""
        self._started.append(client)
        client.start_async()
        return client

    def by_certificate(self, name: str, **more: object) -> KazooClient:
        return self.start(secure_kazoo(self._nodes.secure_hosts, self._authority, name, **more))

    def by_password(self, name: str, password: str = "") -> KazooClient:
        return self.start(KazooClient(self._nodes.hosts, **sasl(name, password or USERS[name])))

    def plain(self) -> KazooClient:
        return self.start(KazooClient(self._nodes.hosts))

    def stop(self) -> None:
        for each in self._started:
            each.stop()
            each.close()


def sasl(name: str, password: str) -> dict[str, object]:
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": name, "password": password}}


@pytest.fixture
def clients(nodes: SecureNodes, authority: Authority) -> Iterator[Clients]:
    made = Clients(nodes, authority)
    yield made
    made.stop()


def only(scheme: str, name: str) -> list[ACL]:
    return [ACL(31, Id(scheme, name))]


def test_a_certificate_opens_what_names_its_subject(clients: Clients) -> None:
    alice = clients.by_certificate("alice")
    alice.create("/x509", b"v", acl=only("x509", "CN=alice"))
    assert alice.get("/x509")[0] == b"v"
    for other in (clients.by_certificate("bob"), clients.by_certificate(""), clients.plain()):
        with pytest.raises(NoAuthError):
            other.get("/x509")
    assert clients.by_certificate("ops").get("/x509")[0] == b"v"


def test_a_password_opens_what_names_its_user(clients: Clients) -> None:
    alice = clients.by_password("alice")
    alice.create("/sasl", b"v", acl=only("sasl", "alice"))
    assert alice.get("/sasl")[0] == b"v"
    # ZooKeeper opens every entry of SASL to a user of the name super.
    for other in (clients.by_password("super"), clients.plain(), clients.by_certificate("alice")):
        with pytest.raises(NoAuthError):
            other.get("/sasl")
    assert clients.by_password("root").get("/sasl")[0] == b"v"


def test_all_that_a_client_has_proven_counts_at_once(clients: Clients) -> None:
    alice = clients.by_certificate("alice", auth_data=[("digest", "carol:pw")], **sasl("root", "toor"))
    alice.create("/all", b"v", acl=only("auth", ""))
    assert {
        (each.perms, each.id.scheme, each.id.id.partition(":")[0]) for each in alice.get_acls("/all")[0]
    } == {
        (31, "x509", "CN=alice"),
        (31, "sasl", "root"),
        (31, "digest", "carol"),
    }


def test_an_address_alone_is_no_proof_for_auth(clients: Clients) -> None:
    with pytest.raises(InvalidACLError):
        clients.plain().create("/auth", b"v", acl=only("auth", ""))


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("mallory", "secret")])
def test_a_wrong_password_opens_no_session(
    nodes: SecureNodes, clients: Clients, name: str, password: str
) -> None:
    client = clients.begin(KazooClient(nodes.hosts, **sasl(name, password)))
    told = f"name {name!r} and password belong to no user"
    eventually(lambda: any(told in nodes.output(each) for each in nodes.nodes), WAIT_S)
    # It tries another node after every failure but this one.
    eventually(lambda: client.client_state == KeeperState.CLOSED, WAIT_S)


def test_who_must_prove_is_turned_away_until_it_does(authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "users.digest"
    file.touch(mode=0o600)
    write(file, {"alice": "old"})
    security = {"sasl_users_file": str(file), "session_require_client_sasl_auth": True}
    with SecureNodes(authority, tls={"client_auth": "want"}, security=security) as nodes:
        clients = Clients(nodes, authority)
        for client in (clients.plain(), clients.by_certificate("alice")):
            with pytest.raises((SessionClosedRequireSaslError, ConnectionLoss)):
                client.exists("/")
            client.stop()
        told = "it proved nothing by sasl"
        eventually(lambda: nodes.output().count(told) >= 2, WAIT_S)
        # Words prove nothing and need no proof.
        assert four_letter_word(nodes.nodes[1].client_port, "ruok") == "imok"
        alice = clients.by_password("alice", "old")
        alice.create("/a")
        write(file, {"alice": "new", "bob": "builder"})
        nodes.reload()
        eventually(lambda: "is read again: 2 users" in nodes.output(), WAIT_S)
        assert clients.by_password("bob", "builder").exists("/a")
        assert clients.by_password("alice", "new").exists("/a")
        # Who has proven the old one stays.
        assert alice.exists("/a")
        clients.stop()


def test_the_admin_port_has_no_right_by_the_nodes_certificate(authority: Authority) -> None:
    """Where there is a TLS port alone, the node dials itself with its own certificate."""
    nodes = SecureNodes(authority, security={"x509_super_user": "CN=nodes"}, listen={"client": ""})
    client = None
    try:
        nodes.start_node(1)
        eventually(lambda: nodes.get(1, "/readyz")[0] == 200, WAIT_S)
        client = secure_kazoo(nodes.secure_hosts, authority, "nodes")
        client.start(WAIT_S)
        for name, acl in (("by-x509", only("x509", "CN=nodes")), ("by-super", only("digest", "a:b"))):
            client.create(f"/{name}", b"v", acl=acl)
            status, body = send(
                nodes.admin_url(1), "PUT", f"/v1/znodes?path=/{name}", WAIT_S, b'{"data": null}'
            )
            assert status == 403, body
            assert client.get(f"/{name}")[0] == b"v"
        status, body = send(
            nodes.admin_url(1), "PUT", "/v1/znodes?path=/free&create=true", WAIT_S, b'{"data": null}'
        )
        assert status == 200, body
    finally:
        if client is not None:
            client.stop()
            client.close()
        nodes.close()
