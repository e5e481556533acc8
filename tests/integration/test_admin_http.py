"""The admin port over real HTTP: health, metrics, status, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus
from types import SimpleNamespace
from typing import cast

import aiohttp
import aiohttp.web
import pytest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families

from quorum.admin import server
from quorum.admin.app import AdminPort, base_app
from quorum.admin.guard import LOCAL_HOSTS
from quorum.admin.members import ASK
from quorum.admin.server import AdminServer
from quorum.errors import (
    AddressInUseError,
    ChangeBusyError,
    ChangeRefusedError,
    ConfigError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorateError,
    SnapshotNotTakenError,
    UnknownMemberError,
)
from quorum.node.member import QuorumMember
from quorum.node.node_state import ENDPOINTS, MEMBER

DEADLINE_S = 10.0
STATUS = {
    "node_id": 1,
    "cluster": "local",
    "cluster_id": "c" * 32,
    "role": "leader",
    "term": 4,
    "leader_id": 1,
    "commit_index": 2**60,
    "applied_index": 2**60 - 1,
    "zxid": 2**60 + 1,
    "state_digest": "ab",
    "sessions": 3,
    "members": [{"node_id": 1, "address": "h:1", "role": "leader", "match_index": 9}],
}


class Node:
    """What the admin port asks, with answers that a test sets."""

    def __init__(self) -> None:
        self.ready = (True, "leading in term 4")
        self.zxid = 17
        self.broken = False
        #: what was asked for, and what is answered
        self.asked: list[tuple[object, ...]] = []
        self.refusal: QuorateError | None = None

    def status(self) -> Mapping[str, object]:
        if self.broken:
            raise RuntimeError("the node's own mistake")
        return STATUS

    def readiness(self) -> tuple[bool, str]:
        return self.ready

    def request(self) -> int:
        """As a node's snapshotter."""
        return self._answer("snapshot")

    async def ask(self, *asked: object) -> int:
        return self._answer(*asked)

    def _answer(self, *asked: object) -> int:
        self.asked.append(asked)
        if self.refusal is not None:
            raise self.refusal
        return 7

    def metrics(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("quorate_zxid", "Last zxid.", value=self.zxid)
        commands = CounterMetricFamily("quorate_commands", 'Commands\nby "path" \\ kind.', labels=["path"])
        commands.add_metric(['/a "quoted"\\path\nwith a line'], 5)
        yield commands
        yield HistogramMetricFamily(
            "quorate_fsync_seconds", "Fsyncs.", buckets=[("0.1", 2), ("+Inf", 3)], sum_value=0.5
        )


def build_app(node: Node, hosts: Iterable[str] = LOCAL_HOSTS) -> aiohttp.web.Application:
    """The application of a node's admin port, without what only a whole node has."""
    app = base_app(node, ENDPOINTS, AdminPort(hosts))
    app[ASK] = node.ask
    app[MEMBER] = cast("QuorumMember", SimpleNamespace(snapshotter=node))
    return app


@contextlib.asynccontextmanager
async def serve(node: Node) -> AsyncIterator[aiohttp.ClientSession]:
    admin = AdminServer(build_app(node), ("127.0.0.1", 0))
    await admin.start()
    host, port = admin.address
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    try:
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(f"http://{host}:{port}", timeout=timeout, headers=headers) as client:
            yield client
    finally:
        await admin.stop()


async def test_the_process_is_alive_as_long_as_it_answers() -> None:
    async with serve(Node()) as client, client.get("/livez") as response:
        assert response.status == 200
        assert await response.json() == {"live": True}


async def test_readiness_is_asked_each_time_and_says_why() -> None:
    node = Node()
    async with serve(node) as client:
        async with client.get("/readyz") as response:
            assert response.status == 200
            assert await response.json() == {"ready": True, "reason": "leading in term 4"}
        node.ready = (False, "no leader is known")
        async with client.get("/readyz") as response:
            assert response.status == 503
            assert await response.json() == {"ready": False, "reason": "no leader is known"}
            assert response.headers["Cache-Control"] == "no-store"


async def test_the_status_is_the_node_s_own_with_exact_integers() -> None:
    async with serve(Node()) as client, client.get("/v1/status") as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        assert json.loads(await response.read()) == STATUS


async def test_metrics_are_prometheus_text_of_now() -> None:
    node = Node()
    async with serve(node) as client:
        async with client.get("/metrics") as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = await response.text()
        node.zxid = 18
        async with client.get("/metrics") as response:
            later = await response.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["quorate_zxid"].type == "gauge"
    assert [sample.value for sample in families["quorate_zxid"].samples] == [17]
    assert "quorate_zxid 18.0\n" in later
    commands = families["quorate_commands"]
    assert commands.documentation == 'Commands\nby "path" \\ kind.'
    assert [(sample.name, sample.labels, sample.value) for sample in commands.samples] == [
        ("quorate_commands_total", {"path": '/a "quoted"\\path\nwith a line'}, 5)
    ]
    assert families["quorate_fsync_seconds"].type == "histogram"
    assert "process_resident_memory_bytes" in families
    assert "python_gc_collections" in families
    (build,) = families["quorate_build_info"].samples
    assert build.value == 1
    assert set(build.labels) == {"version", "implementation", "python", "pgo", "lto", "uvloop"}


async def test_two_nodes_in_one_process_do_not_share_metrics() -> None:
    one, two = Node(), Node()
    two.zxid = 99
    async with serve(one) as first, serve(two) as second:
        async with first.get("/metrics") as response:
            assert "quorate_zxid 17.0\n" in await response.text()
        async with second.get("/metrics") as response:
            assert "quorate_zxid 99.0\n" in await response.text()


def test_the_library_patches_nothing_and_nothing_is_put_in_its_global_registry() -> None:
    """A program that embeds a node finds interpreter and registry as it left them."""
    script = """
import asyncio, gc, signal, sys, threading
def hooks():
    handler = signal.getsignal(signal.SIGTERM)
    return list(gc.callbacks), sys.excepthook, threading.excepthook, handler, asyncio.get_event_loop_policy()
before = hooks()
from prometheus_client import REGISTRY
known = {family.name for family in REGISTRY.collect()}
from quorum.admin.app import base_app
class Node:
    def status(self): return {}
    def readiness(self): return True, ""
    def metrics(self):
        from prometheus_client.metrics_core import GaugeMetricFamily
        return [GaugeMetricFamily("quorate_x", "x", value=1)]
base_app(Node())
assert before == hooks()
assert {family.name for family in REGISTRY.collect()} == known
assert threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/status/", "/metric", "/v1/%2e%2e/status", "/admin?x=1"])
async def test_unknown_paths_name_the_known_ones(path: str) -> None:
    async with serve(Node()) as client, client.get(path) as response:
        assert response.status == 404
        assert response.content_type == "application/problem+json"
        answer = await response.json()
    assert answer["known"] == [f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS]
    assert "GET /v1/status" in answer["known"]
    assert answer["remedy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/v1/status"])
async def test_wrong_methods_name_the_right_one(method: str, path: str) -> None:
    async with serve(Node()) as client, client.request(method, path) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"
        assert (await response.json())["error"] == f"{path} does not take {method}"


CHANGES = [
    ("POST", "/v1/leader", {"node_id": 2}, ("TRANSFER", 2, "", "", False)),
    ("POST", "/v1/members", {"node_id": 4, "address": "h:2281"}, ("ADD", 4, "h:2281", "", False)),
    ("POST", "/v1/members", {"address": "[::1]:2281", "node_id": 255}, ("ADD", 255, "[::1]:2281", "", False)),
    ("POST", "/v1/members", {"node_id": 4, "replace": True}, ("REPLACE", 4, "", "", False)),
    ("POST", "/v1/members", {"node_id": 4, "replace": True, "force": False}, ("REPLACE", 4, "", "", False)),
    ("POST", "/v1/members", {"node_id": 4, "replace": True, "force": True}, ("REPLACE", 4, "", "", True)),
    (
        "POST",
        "/v1/members",
        {"node_id": 4, "replace": True, "incarnation": "a" * 32},
        ("REPLACE", 4, "", "a" * 32, False),
    ),
    ("DELETE", "/v1/members?node_id=4", None, ("REMOVE", 4, "", "", False)),
    ("POST", "/v1/snapshots", None, ("snapshot",)),
    ("POST", "/v1/snapshots", {}, ("snapshot",)),
]


@pytest.mark.parametrize(("method", "path", "body", "asked"), CHANGES)
async def test_a_change_is_handed_on_and_its_answer_is_the_nodes(
    method: str, path: str, body: dict[str, object] | None, asked: tuple[object, ...]
) -> None:
    node = Node()
    async with serve(node) as client, client.request(method, path, json=body) as response:
        assert response.status == (202 if path == "/v1/snapshots" else 200)
        leader = {"leader_id": STATUS["leader_id"], "term": STATUS["term"]}
        members = {"log_index": 7, "members": STATUS["members"]}
        answers = {"/v1/leader": leader, "/v1/snapshots": {"log_index": 7}}
        assert await response.json() == answers.get(path, members)
    assert node.asked == [asked]


@pytest.mark.parametrize(("method", "path", "body", "asked"), CHANGES)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:8181"])
async def test_a_page_in_a_browser_changes_nothing(
    method: str, path: str, body: dict[str, object] | None, asked: tuple[object, ...], origin: str
) -> None:
    node = Node()
    async with serve(node) as client:
        headers = {"Origin": origin}
        async with client.request(method, path, json=body, headers=headers) as response:
            assert response.status == 403
            answer = await response.json()
            assert answer["error"] == "changes are not taken from pages of other sites and ports (Origin)"
            assert "quorate" in answer["remedy"]
        assert node.asked == [], asked
        async with client.get("/v1/status", headers=headers) as response:
            assert response.status == 200


@pytest.mark.parametrize(("method", "path", "body", "asked"), CHANGES)
@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (UnknownMemberError("node 4 is no member", "name one"), 404),
        (ChangeRefusedError("node 4 is the only voter", "add another"), 409),
        (ChangeBusyError("another change is under way", "try again"), 503),
        (NoLeaderError("no leader is known", "try again"), 503),
        (OutcomeUnknownError("outcome unknown", "look first"), 504),
        (SnapshotNotTakenError("nothing was applied yet", "ask later"), 503),
    ],
)
async def test_an_error_of_the_node_has_its_status_and_says_whether_it_is_definite(
    method: str,
    path: str,
    body: dict[str, object] | None,
    asked: tuple[object, ...],
    refusal: QuorateError,
    status: int,
) -> None:
    node = Node()
    node.refusal = refusal
    async with serve(node) as client, client.request(method, path, json=body) as response:
        assert response.status == status
        assert await response.json() == {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": refusal.message,
            "error": refusal.message,
            "remedy": refusal.remedy,
            "definite": status != 504,
            "retriable": status == 503,
        }
    assert node.asked == [asked]


async def test_a_change_that_is_not_well_formed_reaches_nobody() -> None:
    node = Node()
    async with serve(node) as client:
        for body, field in (
            (b"", None),
            (b"[]", None),
            (b'{"node_id": 4}', "address"),
            (b'{"node_id": "4", "address": "h:1"}', "node_id"),
            (b'{"node_id": 4, "address": "h"}', "address"),
            (b'{"node_id": 4, "address": "h:1", "replace": true}', "address"),
            (b'{"node_id": 4, "replace": true, "force": 1}', "force"),
            (b'{"node_id": 4, "replace": true, "incarnation": "x"}', "incarnation"),
        ):
            async with client.post("/v1/members", data=body) as response:
                assert response.status == 400
                answer = await response.json()
                assert answer["error"]
                assert answer["remedy"].startswith("send ")
                assert answer.get("field") == field
    assert node.asked == []


@pytest.mark.parametrize(
    ("query", "body", "named"),
    [
        ("", b'{"path": "/tmp/x"}', "'path'"),
        ("", b'{"node_id": 1}', "'node_id'"),
        ("", b"[]", "[]"),
        ("", b"null", "None"),
        ("", b" ", "not JSON"),
        ("", b"{", "not JSON"),
        ("?node_id=1", b"", "'node_id'"),
    ],
)
async def test_a_request_for_a_snapshot_says_nothing(query: str, body: bytes, named: str) -> None:
    node = Node()
    async with serve(node) as client, client.post(f"/v1/snapshots{query}", data=body) as response:
        assert response.status == 400
        answer = await response.json()
    assert named in answer["error"]
    assert answer["remedy"] == "send no body, or {}"
    assert node.asked == []


async def test_head_is_answered_without_a_body() -> None:
    node = Node()
    node.ready = (False, "starting")
    async with serve(node) as client, client.head("/readyz") as response:
        assert response.status == 503
        assert await response.read() == b""


async def test_a_mistake_in_the_node_is_a_500_and_the_server_goes_on() -> None:
    node = Node()
    node.broken = True
    async with serve(node) as client:
        async with client.get("/v1/status") as response:
            assert response.status == 500
            assert "mistake" not in await response.text()
        async with client.get("/livez") as response:
            assert response.status == 200


async def talk(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "request_head",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: h\r\n" + b"X-A: b\r\n" * 200 + b"\r\n",
    ],
    ids=["garbage", "long path", "long header", "many headers"],
)
async def test_oversized_or_broken_requests_are_refused(request_head: bytes) -> None:
    admin = AdminServer(build_app(Node()), ("127.0.0.1", 0))
    await admin.start()
    try:
        answer = await talk(admin.address[1], request_head)
        assert re.match(rb"HTTP/1\.[01] 4\d\d ", answer), answer[:100]
        assert (await talk(admin.address[1], b"GET /livez HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200")
    finally:
        await admin.stop()


async def test_the_oldest_connection_makes_room_for_a_health_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 4)
    admin = AdminServer(build_app(Node()), ("127.0.0.1", 0))
    await admin.start()
    idle = [await asyncio.open_connection("127.0.0.1", admin.address[1]) for _ in range(4)]
    try:
        answer = await talk(admin.address[1], b"GET /livez HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.0 200")
        async with asyncio.timeout(DEADLINE_S):
            assert await idle[0][0].read() == b""
    finally:
        for _, writer in idle:
            writer.close()
            await writer.wait_closed()
        await admin.stop()


async def test_it_serves_on_a_bound_socket_and_stops() -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    admin = AdminServer(build_app(Node()), bound)
    with pytest.raises(QuorateError, match="does not listen"):
        assert admin.address
    await admin.start()
    assert admin.address == ("127.0.0.1", port)
    assert (await talk(port, b"GET /livez HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200")
    await admin.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_addresses_that_cannot_be_bound_are_named() -> None:
    admin = AdminServer(build_app(Node()), ("127.0.0.1", 0))
    await admin.start()
    port = admin.address[1]
    try:
        with pytest.raises(AddressInUseError, match=rf"listen\.admin = 127\.0\.0\.1:{port}: another process"):
            await AdminServer(build_app(Node()), ("127.0.0.1", port)).start()
        with pytest.raises(ConfigError, match=r"listen\.admin = .*192\.0\.2\.1:80.*cannot be bound"):
            await AdminServer(build_app(Node()), ("192.0.2.1", 80)).start()
        with pytest.raises(ConfigError, match="the host is unknown"):
            await AdminServer(build_app(Node()), ("no such host", 80)).start()
    finally:
        await admin.stop()
