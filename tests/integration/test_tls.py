"""TLS at nodes: unchanged clients with and without a certificate, peers, and what does not speak it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from broker.config.broker import broker_config
from broker.lifecycle.broker import Broker
from broker.lifecycle.listening import BrokerSockets
from quorum.admin.client import send
from quorum.cli.main import main
from quorum.client import Client
from quorum.client.errors import NoServerError
from quorum.platform.tls import DIALLING
from tests.support.certificates import Authority
from tests.support.nodes import eventually
from tests.support.secure_nodes import SecureNodes, secure_kazoo

WAIT_S = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki") / "theirs")


@pytest.fixture(scope="module")
def nodes(authority: Authority) -> Iterator[SecureNodes]:
    with SecureNodes(authority, tls={"client_auth": "want"}) as running:
        yield running


@pytest.mark.parametrize("name", ["", "alice"])
def test_kazoo_speaks_tls_with_and_without_a_certificate(
    nodes: SecureNodes, authority: Authority, name: str
) -> None:
    client = secure_kazoo(nodes.secure_hosts, authority, name)
    client.start(WAIT_S)
    try:
        path = client.create("/tls-", b"v" * 100_000, sequence=True)
        plain = KazooClient(nodes.hosts)
        plain.start(WAIT_S)
        assert plain.get(path)[0] == client.get(path)[0] == b"v" * 100_000
        plain.stop()
        plain.close()
    finally:
        client.stop()
        client.close()


def ended(bare: socket.socket) -> bool:
    """Tell whether the other side ends a connection and says nothing."""
    try:
        return bare.recv(10) == b""
    except ConnectionResetError:
        return True


def refused(port: int, context: ssl.SSLContext) -> bool:
    """Tell whether a TLS port does not serve this client."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as bare:
        try:
            with context.wrap_socket(bare, server_hostname="127.0.0.1") as secure:
                secure.sendall(b"ruok")
                return secure.recv(10) != b"imok"
        except (ssl.SSLError, ConnectionError):
            return True


def test_a_certificate_of_another_authority_is_refused(
    nodes: SecureNodes, authority: Authority, stranger: Authority
) -> None:
    mallory = authority.context()
    mallory.load_cert_chain(*stranger.issue("mallory"))
    assert refused(nodes.secure_port(), mallory)
    eventually(lambda: "its certificate is refused: unable to get local issuer" in nodes.output(), WAIT_S)
    assert refused(nodes.secure_port(), stranger.context())
    assert not refused(nodes.secure_port(), authority.context())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_is_refused_hears_why(
    nodes: SecureNodes, authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    mallory = authority.context()
    mallory.maximum_version = version
    mallory.load_cert_chain(*stranger.issue("mallory"))
    with (
        socket.create_connection(("127.0.0.1", nodes.secure_port()), timeout=WAIT_S) as bare,
        pytest.raises(ssl.SSLError, match="TLSV1_ALERT_UNKNOWN_CA"),
        mallory.wrap_socket(bare, server_hostname="127.0.0.1") as secure,
    ):
        secure.recv(1)


def test_a_needed_certificate_is_asked_of_clients(authority: Authority) -> None:
    with SecureNodes(authority) as nodes:
        assert refused(nodes.secure_port(), authority.context())
        eventually(lambda: "client port: it gave no certificate" in nodes.output(), WAIT_S)
        assert not refused(nodes.secure_port(), authority.context("alice"))


def test_versions_below_the_minimum_are_refused(authority: Authority) -> None:
    context = authority.context("alice")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with SecureNodes(authority, tls={"minimum_version": "1.3"}) as nodes:
        assert refused(nodes.secure_port(), context)
        eventually(lambda: "client port: unsupported protocol" in nodes.output(), WAIT_S)


def test_plain_bytes_on_the_tls_port_are_named(nodes: SecureNodes) -> None:
    def named() -> bool:
        with socket.create_connection(("127.0.0.1", nodes.secure_port())) as bare:
            bare.sendall(b"ruok")
            assert ended(bare)
        return "on the client port: it speaks no TLS, for its first byte is b'r'" in nodes.output()

    # Just after another failure of the same port, it is counted and not logged.
    eventually(named, WAIT_S)


def test_tls_bytes_on_the_plain_port_are_named(nodes: SecureNodes, authority: Authority) -> None:
    with (
        socket.create_connection(("127.0.0.1", nodes.nodes[1].client_port)) as bare,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        authority.context().wrap_socket(bare, server_hostname="127.0.0.1")
    eventually(lambda: "it speaks TLS, and this port is plain" in nodes.output(), WAIT_S)


async def test_our_client_names_what_may_be_wrong_with_its_tls(
    nodes: SecureNodes, authority: Authority, stranger: Authority
) -> None:
    plain = nodes.nodes[1].client_port
    for hosts, tls, words in (
        (nodes.secure_hosts, None, "a port that speaks TLS needs --ca (of a broker quorum.ssl = true)"),
        (nodes.secure_hosts, stranger.context, "tls.quorum.authorities_file"),
        (f"127.0.0.1:{plain}", authority.context, "a plain port is dialled without --ca"),
    ):
        client = Client(hosts, tls=tls)
        with pytest.raises(NoServerError) as caught:
            await client.start(500.0)
        assert words in caught.value.remedy


async def test_a_broker_that_believes_another_authority_says_so_at_once(
    nodes: SecureNodes, stranger: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    sections: dict[str, dict[str, object]] = {
        "broker": {"id": 1, "data_dir": "d"},
        "quorum": {"hosts": nodes.secure_hosts.split(","), "ssl": True},
        "security": {"peer_secret_file": str(secret)},
        "tls": {"authorities_file": str(stranger.file)},
    }
    sockets = BrokerSockets(*(socket.create_server(("127.0.0.1", 0)) for _ in range(3)))
    broker = Broker(broker_config(sections, tmp_path), sockets=sockets)
    starting = asyncio.ensure_future(broker.start())
    await asyncio.to_thread(eventually, lambda: "waits for the quorum" in caplog.text, 8.0)
    starting.cancel()
    await asyncio.wait([starting])
    (record,) = (each for each in caplog.records if "waits for the quorum" in each.getMessage())
    assert record.levelname == "WARNING"
    assert "tls.quorum.authorities_file" in record.getMessage()


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"])
def test_a_hanging_handshake_ends(nodes: SecureNodes, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", nodes.secure_port()), timeout=WAIT_S) as bare:
        bare.sendall(begun)
        assert ended(bare)
    eventually(lambda: "the handshake was not done within 1 s" in nodes.output(), WAIT_S)


def test_a_removed_authority_is_gone_at_the_next_accept(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    both = tmp_path / "both.pem"
    both.write_text(authority.file.read_text() + stranger.file.read_text())
    with SecureNodes(authority, tls={"authorities_file": str(both)}) as nodes:
        certificate, key = stranger.issue("bob")
        bob = authority.context()
        bob.load_cert_chain(certificate, key)
        standing = KazooClient(
            nodes.secure_hosts, use_ssl=True, ca=str(both), certfile=str(certificate), keyfile=str(key)
        )
        standing.start(WAIT_S)
        both.write_text("nothing")
        nodes.reload()
        eventually(lambda: "what was read before stays in use: tls.client.auth" in nodes.output(), WAIT_S)
        assert not refused(nodes.secure_port(), bob)
        both.write_text(authority.file.read_text())
        nodes.reload()
        eventually(lambda: "the files of tls.client are read again" in nodes.output(), WAIT_S)
        assert refused(nodes.secure_port(), bob)
        # What is open stays.
        assert standing.exists("/") is not None
        standing.stop()
        standing.close()


def test_peers_change_over_to_tls_without_a_pause(authority: Authority) -> None:
    with SecureNodes(authority, nodes=3) as nodes:
        client = KazooClient(nodes.hosts)
        client.start(WAIT_S)
        steps: list[dict[str, object]] = [
            {"port_unification": True},
            {"ssl_quorum": True},
            {"port_unification": False},
        ]
        for number, step in enumerate(steps):
            nodes.secure(**step)
            for node_id in nodes.node_ids:
                nodes.stop(node_id)
                nodes.start_node(node_id)
                nodes.wait_ready()
                client.retry(client.create, f"/step-{number}-{node_id}", b"")
        assert len(client.get_children("/")) == 10
        client.stop()
        client.close()
        # A peer that dials without TLS is refused now.
        with socket.create_connection(("127.0.0.1", nodes.nodes[1].peer_port)) as bare:
            bare.sendall(b"QRTM")
            assert ended(bare)
        eventually(lambda: "on the peer port: it speaks no TLS" in nodes.output(), WAIT_S)


def test_the_admin_port_speaks_tls_beside_a_secure_client_port_alone(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = SecureNodes(authority, security={"admin_ssl": True}, listen={"client": ""})
    try:
        nodes.start_node(1)
        admin = f"https://127.0.0.1:{nodes.nodes[1].admin_port}"
        # Without whom to believe nobody is believed.
        eventually(lambda: main(["status", "--admin", admin]) == 1 and not_verified(capsys), WAIT_S)
        certificate, key = authority.issue("operator")
        options = ["--ca", str(authority.file), "--cert", str(certificate), "--key", str(key)]
        eventually(lambda: main(["status", "--admin", admin, *options]) == 0, WAIT_S)
        capsys.readouterr()
        # What the port writes goes through the node's own client port.
        by_tls = copy_context()
        by_tls.run(DIALLING.set, lambda: authority.context("operator"))
        status, body = by_tls.run(
            send, admin, "PUT", "/v1/znodes?path=/by-admin&create=true", WAIT_S, b'{"data": "aGk="}'
        )
        assert status in (200, 201), body
        assert main(["shell", "--hosts", nodes.secure_hosts, *options, "get", "/by-admin"]) == 0
        assert "hi" in capsys.readouterr().out
    finally:
        nodes.close()


def not_verified(capsys: pytest.CaptureFixture[str]) -> bool:
    """Tell whether the last command found a certificate that it does not believe."""
    return "certificate verify failed" in capsys.readouterr().err


async def test_a_thousand_clients_at_once_move_no_leader(authority: Authority) -> None:
    def start() -> SecureNodes:
        # The clients share one loop here: each is slower than a client of its own would be.
        limits = {"handshake_timeout_ms": 120_000}
        nodes = SecureNodes(authority, nodes=3, tables={"limits": limits})
        nodes.start()
        return nodes

    nodes = await asyncio.to_thread(start)
    try:
        leader = await asyncio.to_thread(nodes.leader)
        term = nodes.status(leader)["term"]
        context, port = authority.context("alice"), nodes.secure_port(leader)

        async def ask(_: int) -> bytes:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, ssl_handshake_timeout=120.0
            )
            writer.write(b"ruok")
            answer = await reader.read()
            writer.close()
            return answer

        answers = await asyncio.gather(*map(ask, range(1000)))
        assert set(answers) == {b"imok"}
        status = await asyncio.to_thread(nodes.status, leader)
        assert (status["role"], status["term"]) == ("leader", term)
        metrics = (await asyncio.to_thread(nodes.get, leader, "/metrics"))[1].decode()
        assert 'quorate_tls_handshakes_total{port="client"} 1000.0' in metrics
    finally:
        await asyncio.to_thread(nodes.close)
