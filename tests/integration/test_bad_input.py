"""Bad input from outside: what anybody can send to a node's ports, and everything a start can find wrong.

On the ports: the connection ends or is answered with an error, and nobody else notices: a parallel client on
every node sees no error, no process ends, and the state digests stay as they were. At a start: exit code 1
or 2, no traceback, an error that names the thing and its value, and a remedy. Source:
docs/internals/consensus.md, "Membership", "Journal".
"""

from __future__ import annotations

import random
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorum.cli.main import main
from tests.support.nodes import QUICK_SESSIONS, Node, QuorateNodes, eventually, toml
from tests.support.wire_load import (
    CREATE,
    GET_DATA,
    SET_DATA,
    Connection,
    Job,
    LoadError,
    buffer,
    create_body,
    frame,
    prepare,
    read_body,
    run,
)

DEADLINE_S = 30.0
CLOSE_DEADLINE_S = 10.0
HANDSHAKE_TIMEOUT_MS = 1000
FRAME_BYTES_MAX = 1 << 20
SETTINGS = {
    "limits": QUICK_SESSIONS["limits"]
    | {"handshake_timeout_ms": HANDSHAKE_TIMEOUT_MS, "frame_bytes_max": FRAME_BYTES_MAX}
}
RANDOM = random.Random(20)
SILENT_CONNECTIONS = 50
#: More requests than any buffer between client and server takes.
UNREAD_BYTES_MAX = 64 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[QuorateNodes]:
    """Three nodes that every test leaves as it found them."""
    with QuorateNodes(settings=SETTINGS) as nodes:
        with Connection(nodes.host(1)) as connection:
            connection.ensure("/watched")
            assert connection.call(CREATE, create_body("/large", bytes(100_000)))[0] == 0
        yield nodes


class Neighbours:
    """A client at every node that reads and syncs all the time and must not notice anything."""

    def __init__(self, nodes: QuorateNodes) -> None:
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.rounds = dict.fromkeys(nodes.node_ids, 0)
        self._threads = [
            threading.Thread(target=self._read, args=(node_id, nodes.host(node_id)), daemon=True)
            for node_id in nodes.node_ids
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, node_id: int, host: str) -> None:
        try:
            with Connection(host, timeout_s=CLOSE_DEADLINE_S) as connection:
                while not self._stop.is_set():
                    error, _, _ = connection.call(GET_DATA, read_body("/watched"))
                    if error:
                        raise LoadError(f"error {error}")
                    connection.sync()
                    self.rounds[node_id] += 1
        except (OSError, LoadError) as problem:
            self.errors.append(f"client at node {node_id}: {problem!r}")

    def wait_for_rounds(self, count: int = 3) -> None:
        """Wait until every one of them went round a few more times."""
        before = dict(self.rounds)
        eventually(
            lambda: (
                self.errors or all(self.rounds[node_id] >= before[node_id] + count for node_id in self.rounds)
            ),
            DEADLINE_S,
            "the neighbours are served",
        )

    def finish(self) -> None:
        """End their sessions; raises what they noticed."""
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert self.errors == []


@pytest.fixture
def undisturbed(cluster: QuorateNodes) -> Iterator[QuorateNodes]:
    """The cluster; afterwards digests, processes and neighbours must be as if nothing had happened."""
    digest = cluster.one_digest()
    pids = {node_id: cluster.pid(node_id) for node_id in cluster.node_ids}
    told = {node_id: node.output_path.stat().st_size for node_id, node in cluster.nodes.items()}
    neighbours = Neighbours(cluster)
    neighbours.wait_for_rounds()
    yield cluster
    neighbours.wait_for_rounds()
    neighbours.finish()
    assert {node_id: cluster.pid(node_id) for node_id in cluster.node_ids if cluster.running(node_id)} == pids
    assert cluster.one_digest() == digest
    for node_id, node in cluster.nodes.items():
        text = node.output_path.read_bytes()[told[node_id] :].decode(errors="replace")
        assert "Traceback" not in text, f"output of node {node_id}:\n{text}"


def connect(port: int, deadline_s: float = CLOSE_DEADLINE_S) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=deadline_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def closed_after(port: int, *parts: bytes) -> bytes:
    """Send bytes to a port; return what came back before the server closed the connection.

    Raises:
        TimeoutError: the server kept the connection open.
    """
    with connect(port) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            return b""
        return read_to_end(connection)


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass  # the server closed with our bytes unread: that is a close as well
    return received


def handshake(*, protocol: int = 0, password: bytes = bytes(16), tail: bytes = b"\x00") -> bytes:
    request = struct.pack(">iqiq", protocol, 0, 10000, 0) + buffer(password) + tail
    return struct.pack(">i", len(request)) + request


GARBAGE = {
    "nothing but zeros": bytes(64),
    "random bytes": RANDOM.randbytes(4096),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + RANDOM.randbytes(506),
    "a negative length": b"\xff\xff\xff\xff" + bytes(40),
    "the largest length": b"\x7f\xff\xff\xff" + bytes(40),
    "a length just over the limit": struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(100),
    "an unknown word": b"quit\n",
}

HANDSHAKES = {
    "a byte short": struct.pack(">i", 27) + bytes(27),
    "a password longer than the frame": struct.pack(">i", 45)
    + struct.pack(">iqiq", 0, 0, 10000, 0)
    + struct.pack(">i", 1 << 20)
    + bytes(17),
    "a negative password length that is not null": struct.pack(">i", 29)
    + struct.pack(">iqiq", 0, 0, 10000, 0)
    + struct.pack(">i", -7)
    + b"\x00",
}

FRAMES = {
    "length zero": struct.pack(">i", 0),
    "a negative length": struct.pack(">i", -1),
    "a length over the limit": struct.pack(">i", FRAME_BYTES_MAX + 1),
    "half a header": struct.pack(">ii", 4, 1),
    "an unknown operation": frame(1, 4711, b""),
}

BODIES = {
    "an empty create": (CREATE, b""),
    "a path longer than the frame": (GET_DATA, struct.pack(">i", 1 << 30) + b"/watched"),
    "data of a negative length": (SET_DATA, buffer(b"/watched") + struct.pack(">ii", -5, 0)),
    "an ACL of a billion entries": (CREATE, buffer(b"/x") + buffer(b"") + struct.pack(">i", 10**9)),
    "a multi without an end": (14, struct.pack(">i?i", 2, False, -1)),
    "a multi in a multi": (14, struct.pack(">i?i", 14, False, -1) + struct.pack(">i?i", -1, True, -1)),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_on_the_client_port(undisturbed: QuorateNodes, garbage: bytes) -> None:
    for node in undisturbed.nodes.values():
        assert closed_after(node.client_port, garbage) == b""


@pytest.mark.parametrize("request_bytes", HANDSHAKES.values(), ids=HANDSHAKES.keys())
def test_a_bad_handshake(undisturbed: QuorateNodes, request_bytes: bytes) -> None:
    assert closed_after(undisturbed.nodes[1].client_port, request_bytes) == b""


@pytest.mark.parametrize("bad", FRAMES.values(), ids=FRAMES.keys())
def test_a_bad_frame_behind_a_good_handshake(undisturbed: QuorateNodes, bad: bytes) -> None:
    for node in undisturbed.nodes.values():
        answer = closed_after(node.client_port, handshake(), bad)
        assert len(answer) >= 41, "the handshake was not answered"


@pytest.mark.parametrize(("op", "body"), BODIES.values(), ids=BODIES.keys())
def test_a_body_that_means_nothing_is_a_marshalling_error(
    undisturbed: QuorateNodes, op: int, body: bytes
) -> None:
    for node_id in undisturbed.nodes:
        with Connection(undisturbed.host(node_id)) as connection:
            assert connection.call(op, body)[0] == -5
            assert connection.call(GET_DATA, read_body("/watched"))[0] == 0


def test_a_path_that_is_not_utf8_is_answered_with_an_error(undisturbed: QuorateNodes) -> None:
    with Connection(undisturbed.host(1)) as connection:
        assert connection.call(GET_DATA, buffer(b"/\xff\xfe\x80") + b"\x00")[0] < 0
        assert connection.call(GET_DATA, read_body("/watched"))[0] == 0


def test_nothing_behind_a_bad_frame_takes_effect(undisturbed: QuorateNodes) -> None:
    late = frame(2, CREATE, create_body("/late", b""))
    closed_after(undisturbed.nodes[2].client_port, handshake(), FRAMES["half a header"] + late)
    with Connection(undisturbed.host(2)) as connection:
        connection.sync()
        assert connection.call(3, read_body("/late"))[0] == -101


def test_a_frame_that_comes_byte_by_byte_is_served(undisturbed: QuorateNodes) -> None:
    with connect(undisturbed.nodes[1].client_port) as connection:
        for byte in handshake() + frame(1, GET_DATA, read_body("/watched")):
            connection.sendall(bytes([byte]))
        received = b""
        while len(received) < 41 + 20:
            received += connection.recv(65536)
        assert struct.unpack_from(">iiqi", received, 41)[1] == 1


def test_connections_that_stay_silent_are_closed(undisturbed: QuorateNodes) -> None:
    node = undisturbed.nodes[1]
    silent = [connect(node.client_port) for _ in range(SILENT_CONNECTIONS)]
    begun = [connect(node.client_port) for _ in range(SILENT_CONNECTIONS)]
    try:
        for connection in begun:
            connection.sendall(handshake()[:20])
        for connection in [*silent, *begun]:
            assert read_to_end(connection) == b""
    finally:
        for connection in [*silent, *begun]:
            connection.close()


def test_half_open_sessions_expire(undisturbed: QuorateNodes) -> None:
    """A client that vanished without a word: its session ends and the server closes what it holds."""
    request = struct.pack(">iqiq", 0, 0, 1000, 0) + buffer(bytes(16)) + b"\x00"
    with connect(undisturbed.nodes[2].client_port) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request + frame(1, GET_DATA, b"")[:6])
        assert len(read_to_end(connection)) == 41


def test_a_client_that_never_reads(undisturbed: QuorateNodes) -> None:
    """Requests without anybody to take the answers: the server stops reading and serves all others."""
    with Connection(undisturbed.host(1)) as connection:
        connection.sync()
        connection.socket.setblocking(False)
        requests, sent = frame(1, GET_DATA, read_body("/large")) * 100, 0
        try:
            while sent < UNREAD_BYTES_MAX:
                sent += connection.socket.send(requests)
        except BlockingIOError:
            pass  # the server has stopped reading
        assert sent < UNREAD_BYTES_MAX, "the server reads on although nobody takes its answers"
        connection.socket.close()


PEER_GARBAGE = {
    "random bytes": RANDOM.randbytes(8192),
    "an HTTP request": GARBAGE["an HTTP request"],
    "zeros": bytes(8192),
    "a ZooKeeper handshake": handshake(),
    "the largest length": b"\xff\xff\xff\xff" + bytes(64),
    "a hello of another version": b"QRTM\x63\x01\x00\x04" + bytes(4),
    "a hello that is too long": b"QRTM\x02\x01\xff\xff" + bytes(70000),
    "a hello that is no record": b"QRTM\x02\x01\x00\x40" + RANDOM.randbytes(64),
}


@pytest.mark.parametrize("garbage", PEER_GARBAGE.values(), ids=PEER_GARBAGE.keys())
def test_garbage_on_the_peer_port(undisturbed: QuorateNodes, garbage: bytes) -> None:
    for node in undisturbed.nodes.values():
        closed_after(node.peer_port, garbage)


def test_silent_and_slow_connections_on_the_peer_port(undisturbed: QuorateNodes) -> None:
    connections = [connect(node.peer_port, 30.0) for node in undisturbed.nodes.values() for _ in range(10)]
    try:
        for number, connection in enumerate(connections):
            connection.sendall(b"QRTM\x02\x01\x00\x40"[: number % 9])
        for connection in connections:
            read_to_end(connection)
    finally:
        for connection in connections:
            connection.close()


ADMIN_GARBAGE = {
    "random bytes": RANDOM.randbytes(4096) + b"\r\n\r\n",
    "a header without end": b"GET /livez HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "a bad length": b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "no HTTP at all": b"ruok\r\n\r\n",
}


@pytest.mark.parametrize("garbage", ADMIN_GARBAGE.values(), ids=ADMIN_GARBAGE.keys())
def test_garbage_on_the_admin_port(undisturbed: QuorateNodes, garbage: bytes) -> None:
    for node in undisturbed.nodes.values():
        answer = closed_after(node.admin_port, garbage)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer[:200]


def test_half_open_connections_on_the_admin_port(undisturbed: QuorateNodes) -> None:
    connections = [connect(node.admin_port) for node in undisturbed.nodes.values() for _ in range(10)]
    try:
        for connection in connections:
            connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost:")
        for node_id in undisturbed.node_ids:
            assert undisturbed.get(node_id, "/livez")[0] == 200
            assert undisturbed.get(node_id, "/nowhere")[0] == 404
    finally:
        for connection in connections:
            connection.close()


# -- starts that are refused ---------------------------------------------------------------------------------


def assert_refused(code: int, output: str, *named: str) -> None:
    """The process ended with 1 or 2, no traceback, an error that names everything asked for, and a remedy."""
    assert code in (1, 2), f"exit code {code}:\n{output}"
    assert "Traceback" not in output, output
    assert "error:" in output, output
    assert "remedy:" in output, output
    for word in named:
        assert word in output, f"{word!r} is not named:\n{output}"


class Lone:
    """Configuration of a cluster of one node, to be spoiled before it starts."""

    def __init__(self, folder: Path, cluster: str = "test", secret: str | None = None) -> None:
        self.nodes = QuorateNodes(nodes=1, folder=folder, cluster=cluster, secret=secret, settings=SETTINGS)
        self.node: Node = self.nodes.nodes[1]
        self.sections = self.nodes.config(self.node)

    def write(self) -> None:
        """Write node.toml again."""
        self.node.config_path.write_text(toml(self.sections))

    def run(self, *options: str) -> tuple[int, str]:
        """Start the node and wait for its end."""
        return self.nodes.run_to_end(1, *options, deadline_s=DEADLINE_S)

    def fill(self, count: int = 300) -> None:
        """Found the cluster, write some nodes one by one, kill it (no snapshot, no clean end)."""
        self.nodes.start()
        job = Job(self.nodes.host(1), "create", "/filled", count, window=1)
        with Connection(job.host) as connection:
            connection.ensure("/filled")
            run(connection, job, prepare(job))
        self.nodes.kill(1)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Lone]:
    made = Lone(tmp_path / "lone")
    try:
        yield made
    finally:
        made.nodes.close()


CONFIGURATIONS: dict[str, tuple[dict[str, dict[str, object]], list[str]]] = {
    "an unknown key": ({"limits": {"tik_ms": 500}}, ["limits.tik_ms", "tick_ms"]),
    "an unknown section": ({"limitz": {"tick_ms": 500}}, ["limitz", "limits"]),
    "a text for a number": ({"limits": {"tick_ms": "fast"}}, ["limits.tick_ms", "fast"]),
    "a number for a text": ({"node": {"cluster": 7}}, ["node.cluster", "7"]),
    "a boolean for a number": ({"raft": {"forward_deadline_ms": True}}, ["raft.forward_deadline_ms"]),
    "a fraction for a number": (
        {"raft": {"heartbeat_interval_ms": 0.5}},
        ["raft.heartbeat_interval_ms", "0.5"],
    ),
    "one number for two": ({"raft": {"election_timeout_ms": 300}}, ["raft.election_timeout_ms", "300"]),
    "election timeouts the wrong way round": (
        {"raft": {"election_timeout_ms": [600, 300]}},
        ["raft.election_timeout_ms", "600"],
    ),
    "heartbeats slower than elections": (
        {"raft": {"heartbeat_interval_ms": 250, "election_timeout_ms": [300, 600]}},
        ["raft.heartbeat_interval_ms", "250"],
    ),
    "session timeouts the wrong way round": (
        {"limits": {"session_timeout_min_ms": 9000, "session_timeout_max_ms": 3000}},
        ["limits.session_timeout_min_ms", "9000"],
    ),
    "a timeout of zero": ({"limits": {"tick_ms": 0}}, ["limits.tick_ms", "0"]),
    "a negative timeout": ({"limits": {"handshake_timeout_ms": -5}}, ["limits.handshake_timeout_ms", "-5"]),
    "an address without a port": ({"listen": {"client": "127.0.0.1"}}, ["listen.client", "127.0.0.1"]),
    "a port out of range": ({"listen": {"admin": "127.0.0.1:70000"}}, ["listen.admin", "70000"]),
    "a node that is no member": ({"node": {"id": 7}}, ["node.id", "7"]),
    "a node id of zero": ({"node": {"id": 0}}, ["node.id", "0"]),
    "a member address that is none": ({"members": {"1": "nowhere"}}, ["members.1", "nowhere"]),
    "a secret file that is not there": (
        {"security": {"peer_secret_file": "/nonexistent/peer.secret"}},
        ["security.peer_secret_file", "/nonexistent/peer.secret"],
    ),
    "an unknown word": ({"security": {"four_letter_words": ["ruokk"]}}, ["four_letter_words", "ruokk"]),
}


@pytest.mark.parametrize(("change", "named"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_a_configuration_is_refused(
    lone: Lone,
    change: dict[str, dict[str, object]],
    named: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the command, before it changes anything of its process; those below are processes."""
    for section, values in change.items():
        lone.sections.setdefault(section, {}).update(values)
    lone.write()
    code = main(["serve", "--config", str(lone.node.config_path), "--bootstrap"])
    assert_refused(code, capsys.readouterr().err, *named)
    assert not lone.node.data_dir.exists() or not list(lone.node.data_dir.iterdir())


def test_an_address_of_another_machine(lone: Lone) -> None:
    lone.sections["listen"]["client"] = "192.0.2.1:2181"
    lone.write()
    assert_refused(*lone.run("--bootstrap"), "listen.client", "192.0.2.1")
    assert not lone.node.data_dir.exists() or not list(lone.node.data_dir.iterdir())


def test_a_configuration_file_that_is_no_toml(lone: Lone) -> None:
    lone.node.config_path.write_text("[node\nid = 1\n")
    assert_refused(*lone.run("--bootstrap"), str(lone.node.config_path), "line 1")


def test_a_configuration_file_that_is_not_there(lone: Lone) -> None:
    lone.node.config_path.unlink()
    assert_refused(*lone.run("--bootstrap"), str(lone.node.config_path))


def test_an_unknown_setting_in_the_environment(tmp_path: Path) -> None:
    nodes = QuorateNodes(nodes=1, folder=tmp_path, environment={"QUORATE_LIMITS_TIK_MS": "500"})
    try:
        assert_refused(*nodes.run_to_end(1, "--bootstrap"), "QUORATE_LIMITS_TIK_MS")
    finally:
        nodes.close()


def test_a_secret_that_everybody_can_read(lone: Lone) -> None:
    lone.node.secret_path.chmod(0o644)
    assert_refused(*lone.run("--bootstrap"), str(lone.node.secret_path), "chmod 600")


def test_an_empty_directory_without_bootstrap(lone: Lone) -> None:
    assert_refused(*lone.run(), str(lone.node.data_dir), "--bootstrap", "--join")
    assert not lone.node.data_dir.exists() or not list(lone.node.data_dir.iterdir())


@pytest.mark.parametrize("key", ["client", "peer", "admin"])
def test_a_port_in_use(lone: Lone, key: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lone.sections["listen"][key] = f"127.0.0.1:{port}"
        if key == "peer":
            lone.sections["members"]["1"] = f"127.0.0.1:{port}"
        lone.write()
        assert_refused(*lone.run("--bootstrap"), f"listen.{key}", str(port), "another")


def test_a_data_directory_in_use(lone: Lone) -> None:
    lone.nodes.start()
    second = Lone(lone.nodes.folder.parent / "second", secret=lone.nodes.secret)
    try:
        second.sections["node"]["data_dir"] = str(lone.node.data_dir)
        second.write()
        assert_refused(*second.run(), str(lone.node.data_dir), "in use")
        assert lone.nodes.ready(1)
    finally:
        second.nodes.close()


def test_the_data_directory_of_another_node(lone: Lone) -> None:
    lone.fill(count=1)
    lone.sections["node"]["id"] = 2
    lone.sections["members"] = {"2": lone.sections["members"]["1"]}
    lone.write()
    before = contents(lone.node.data_dir)
    assert_refused(*lone.run(), str(lone.node.data_dir), "node 1")
    assert contents(lone.node.data_dir) == before


def test_the_data_directory_of_a_cluster_of_another_name(lone: Lone) -> None:
    lone.fill(count=1)
    lone.sections["node"]["cluster"] = "elsewhere"
    lone.write()
    before = contents(lone.node.data_dir)
    assert_refused(*lone.run(), "test", "elsewhere")
    assert contents(lone.node.data_dir) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.name != "lock"
    }


def flip(path: Path, position: int) -> None:
    """Turn one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def written_bytes(path: Path) -> int:
    """Length of a segment without the zeros that were written ahead."""
    return len(path.read_bytes().rstrip(b"\x00"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_damaged_journal(lone: Lone, share: float) -> None:
    lone.fill()
    segment = max(lone.node.data_dir.rglob("*.segment"), key=written_bytes)
    flip(segment, int(written_bytes(segment) * share))
    before = contents(lone.node.data_dir)
    assert_refused(*lone.run(), str(segment), "damaged")
    assert contents(lone.node.data_dir) == before


def test_a_journal_without_its_first_segment(lone: Lone) -> None:
    lone.fill()
    segment = min(lone.node.data_dir.rglob("*.segment"))
    segment.unlink()
    assert_refused(*lone.run(), str(lone.node.data_dir))


def test_an_identity_file_that_is_garbage(lone: Lone) -> None:
    lone.fill(count=1)
    identity = lone.node.data_dir / "identity.json"
    identity.write_text("{}")
    assert_refused(*lone.run(), str(identity))


# -- nodes that do not belong --------------------------------------------------------------------------------


def stranger(
    cluster: QuorateNodes, folder: Path, *, name: str = "test", secret: str | None = None
) -> QuorateNodes:
    """A process that says it is node 3 of the running cluster, on ports of its own."""
    made = QuorateNodes(
        nodes=3, folder=folder, cluster=name, secret=secret or cluster.secret, settings=SETTINGS
    )
    sections = made.config(made.nodes[3])
    for node_id in (1, 2):
        sections["members"][str(node_id)] = f"127.0.0.1:{cluster.nodes[node_id].peer_port}"
    made.nodes[3].config_path.write_text(toml(sections))
    return made


Check = Callable[[str], bool]

STRANGERS: dict[str, tuple[str, str | None, list[str]]] = {
    "another cluster": ("elsewhere", None, ["cluster", "test", "elsewhere"]),
    "another secret": ("test", "0" * 64, ["authentication", "peer_secret_file"]),
}


@pytest.mark.parametrize(("name", "secret", "named"), STRANGERS.values(), ids=STRANGERS.keys())
def test_a_node_that_does_not_belong(
    undisturbed: QuorateNodes, tmp_path: Path, name: str, secret: str | None, named: list[str]
) -> None:
    other = stranger(undisturbed, tmp_path, name=name, secret=secret)
    try:
        other.start_node(3, "--bootstrap")
        assert_told(other, named)
    finally:
        other.close()


def test_a_node_with_the_data_directory_of_another_cluster(undisturbed: QuorateNodes, tmp_path: Path) -> None:
    """The same name and secret, but founded by others: the cluster ids differ."""
    others = QuorateNodes(folder=tmp_path / "others", secret=undisturbed.secret, settings=SETTINGS)
    with others:
        pass
    moved = stranger(undisturbed, tmp_path / "stranger")
    try:
        shutil.copytree(others.nodes[3].data_dir, moved.nodes[3].data_dir)
        moved.start_node(3, "--bootstrap")
        assert_told(moved, ["cluster", "id"])
    finally:
        moved.close()


def assert_told(nodes: QuorateNodes, named: list[str]) -> None:
    """The node says what is wrong and never becomes ready; it may wait or end with 1 or 2."""
    node = nodes.nodes[3]

    def told() -> bool:
        return all(word in node.output_path.read_text() for word in named)

    eventually(told, DEADLINE_S, f"the node says {named}: {node.output_path.read_text()}")
    assert "Traceback" not in node.output_path.read_text()
    if nodes.running(3):
        assert not nodes.ready(3)
        nodes.stop(3)
    else:
        assert node.process is not None
        assert node.process.returncode in (1, 2)


def test_the_output_of_a_refused_node_holds_no_secret(lone: Lone) -> None:
    lone.sections["limits"]["tick_ms"] = 0
    lone.write()
    _, output = lone.run("--bootstrap")
    assert lone.nodes.secret not in output
    assert lone.node.secret_path.exists()
