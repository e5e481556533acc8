"""The API of a node's admin port: its description holds for any request, and its endpoints tell the state."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from prometheus_client.parser import text_string_to_metric_families

from quorum.cli.commands.control_plane import describe_control_plane, read_control_plane
from quorum.core.machine import StateMachine
from quorum.local.embedded import Ensemble, ensemble_in_thread
from quorum.metadata import paths
from quorum.metadata.group_records import (
    ClassicGroupRecord,
    MemberRecord,
    OffsetRecord,
    encode_chunk_names,
)
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from quorum.node.storage import load_machine
from quorum.platform.os_runtime import OsDisk
from quorum.raft.snapshots.format import SnapshotReader
from tests.support.nodes import eventually
from tests.support.observability import named_metrics, shown_metrics
from tests.support.trust import TRUST

DEADLINE_S = 30.0
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
NAMES = (
    *("status", "members", "leader", "znodes", "transactions", "snapshots", "journal", "sessions", "watches"),
    *("connections", "config", "cluster", "brokers", "topics", "groups", "changelog", "events"),
    "openapi.json",
)
SUPER_DIGEST = "super:" + "A" * 27 + "="


@pytest.fixture(scope="module")
def node() -> Iterator[Ensemble]:
    settings: dict[str, dict[str, object]] = {
        "limits": {"tick_ms": 500},
        "security": {"super_digest": SUPER_DIGEST},
    }
    with ensemble_in_thread(1, settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(node: Ensemble) -> Iterator[KazooClient]:
    connected = KazooClient(hosts=node.hosts)
    connected.start()
    yield connected
    connected.stop()
    connected.close()


def raw(node: Ensemble, method: str, path: str, body: object = None) -> tuple[int, str, bytes]:
    """Status, content type and body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(node.admin_urls[0] + path, data, headers, method=method)
    try:
        with urlopen(request, timeout=DEADLINE_S) as response:
            return response.status, response.headers.get_content_type(), response.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers.get_content_type(), error.read()


def ask(node: Ensemble, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    status, content_type, content = raw(node, method, path, body)
    assert content_type == ("application/json" if status < 400 else "application/problem+json")
    answer: dict[str, Any] = json.loads(content)
    if status >= 400:
        assert (answer["status"], answer["type"]) == (status, "about:blank")
        assert answer["title"]
        assert answer["detail"]
    return status, answer


def show(node: Ensemble, path: str) -> dict[str, Any]:
    status, answer = ask(node, "GET", path)
    assert status == 200, answer
    return answer


def text(data: str) -> str:
    return base64.b64encode(data.encode()).decode()


def test_no_request_breaks_the_description(node: Ensemble, client: KazooClient, tmp_path: Path) -> None:
    # A cluster with a znode refuses to begin an import, which would close it to the tests behind this one.
    client.ensure_path("/kept")
    description = show(node, "/v1/openapi.json")
    assert description["openapi"] == "3.1.0"
    for parameter in description["paths"]["/v1/changelog"]["get"]["parameters"]:
        if parameter["name"] == "wait_ms":
            parameter["schema"]["maximum"] = 20
    # An import begins in an empty cluster alone, and no client would write then.
    assert ask(node, "PUT", "/v1/znodes?path=/kept&create=true", {"data": None})[0] == 200
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(description))
    url = node.admin_urls[0]
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(file), "--url", url]
    command += ["--phases", "coverage,fuzzing", "--checks", CHECKS, "--max-examples", "10", "--seed", "7"]
    # Members are changed by tests of their own: here each would wait for a node that does not exist. Events
    # do not end.
    command += ["--exclude-path", "/v1/members", "--exclude-path", "/v1/events"]
    # What GET is tried with serves HEAD, too.
    command += ["--exclude-method", "HEAD"]
    command += ["--no-color", "-H", "Content-Type: application/json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
    assert "Tested: 3" in ended.stdout


def test_every_endpoint_is_described(node: Ensemble) -> None:
    paths = show(node, "/v1/openapi.json")["paths"]
    assert {f"/v1/{name}" for name in NAMES} <= paths.keys()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_a_method_that_a_path_does_not_have_is_405_with_those_that_it_has(
    node: Ensemble, method: str
) -> None:
    paths = show(node, "/v1/openapi.json")["paths"]
    refused = 0
    for path, operations in paths.items():
        if method.lower() in operations:
            continue
        refused += 1
        # Neither a type nor a body is looked at.
        url = node.admin_urls[0] + path.replace("{name}", "name")
        request = Request(url, b"{", {"Content-Type": "text/plain"}, method=method)
        with pytest.raises(HTTPError) as error, urlopen(request, timeout=DEADLINE_S):
            pass
        with error.value:
            allowed = error.value.headers["Allow"].split(", ")
            assert (error.value.code, allowed) == (405, sorted(map(str.upper, operations))), path
    assert refused


def test_a_znode_is_created_written_read_and_deleted(node: Ensemble, client: KazooClient) -> None:
    assert ask(node, "PUT", "/v1/znodes?path=/w", {"data": text("1")})[0] == 404
    status, created = ask(node, "PUT", "/v1/znodes?path=/w&create=true", {"data": text("1")})
    assert (status, created["stat"]["version"]) == (200, 0)
    assert client.get("/w")[0] == b"1"
    assert ask(node, "PUT", "/v1/znodes?path=/w&version=5", {"data": text("2")})[0] == 409
    assert ask(node, "PUT", "/v1/znodes?path=/w&version=0", {"data": text("2")})[0] == 200
    client.create("/w/child")
    found = show(node, "/v1/znodes?path=/w&linearizable=true")
    assert (found["data"], found["stat"]["version"], found["children"]) == (text("2"), 1, ["child"])
    assert ask(node, "DELETE", "/v1/znodes?path=/w")[0] == 409
    client.delete("/w/child")
    assert ask(node, "DELETE", "/v1/znodes?path=/w&version=0")[0] == 409
    assert ask(node, "DELETE", "/v1/znodes?path=/w&version=1")[0] == 200
    assert client.exists("/w") is None
    assert ask(node, "GET", "/v1/znodes?path=/w")[0] == 404


@pytest.mark.parametrize(
    ("method", "query", "status", "field", "remedy"),
    [
        ("GET", "path=/refused/none", 404, "path", "create=true"),
        ("PUT", "path=/refused&version=7", 409, "version", "read the node again"),
        ("DELETE", "path=/refused", 409, "path", "delete its children"),
        ("PUT", "path=/refused/short/x&create=true", 409, "path", "not ephemeral"),
    ],
)
def test_a_refusal_names_field_and_remedy(
    *, node: Ensemble, client: KazooClient, method: str, query: str, status: int, field: str, remedy: str
) -> None:
    client.ensure_path("/refused")
    if client.exists("/refused/short") is None:
        client.create("/refused/short", ephemeral=True)
    body = {"data": text("1")} if method == "PUT" else None
    code, problem = ask(node, method, f"/v1/znodes?{query}", body)
    assert (code, problem["field"]) == (status, field)
    assert "/refused" in problem["detail"]
    assert remedy in problem["remedy"]


def test_a_transaction_is_carried_out_as_a_whole_or_not_at_all(node: Ensemble, client: KazooClient) -> None:
    client.create("/t", b"0")
    operations: list[Mapping[str, object]] = [
        {"op": "check", "path": "/t", "version": 0},
        {"op": "set", "path": "/t", "data": text("1")},
        {"op": "create", "path": "/t/n", "data": None, "mode": "persistent_sequential"},
    ]
    status, answer = ask(node, "POST", "/v1/transactions", {"operations": operations})
    assert (status, answer["results"][2]["path"]) == (200, "/t/n0000000000")
    status, answer = ask(node, "POST", "/v1/transactions", {"operations": operations})
    assert status == 409
    assert "operation 0" in answer["detail"]
    assert client.get("/t")[1].version == 1


def test_access_lists_hold_for_who_proved_nothing(node: Ensemble, client: KazooClient) -> None:
    client.create("/closed", b"x", acl=[make_digest_acl("u", "p", all=True)])
    for method, query, body in (
        ("GET", "", None),
        ("PUT", "", {"data": None}),
        ("GET", "&linearizable=true", None),
    ):
        assert ask(node, method, f"/v1/znodes?path=/closed{query}", body)[0] == 403


def test_children_come_in_pages(node: Ensemble, client: KazooClient) -> None:
    client.create("/many")
    for number in range(7):
        client.create(f"/many/{number}")
    first = show(node, "/v1/znodes?path=/many&limit=4")["children"]
    assert first == ["0", "1", "2", "3"]
    assert show(node, f"/v1/znodes?path=/many&after={first[-1]}")["children"] == ["4", "5", "6"]


def test_sessions_connections_and_watches_are_listed(node: Ensemble, client: KazooClient) -> None:
    def mine() -> Any:
        return {each["session_id"]: each for each in show(node, "/v1/sessions")["items"]}[session_id]

    session_id = client.client_id[0]
    before = mine()["ephemerals"]
    client.create("/mine", ephemeral=True)
    client.get("/mine", watch=lambda _event: None)
    assert mine()["ephemerals"] == before + 1
    assert mine()["connected_here"]
    connections = [each["session_id"] for each in show(node, "/v1/connections")["items"]]
    assert session_id in connections
    assert {"path": "/mine", "session_ids": [session_id]} in show(node, "/v1/watches")["items"]


def test_pages_follow_each_other(node: Ensemble) -> None:
    clients = [KazooClient(hosts=node.hosts) for _ in range(3)]
    for each in clients:
        each.start()
    try:
        everything = [each["session_id"] for each in show(node, "/v1/sessions")["items"]]
        paged: list[int] = []
        after: int | None = -1
        while after is not None:
            page = show(node, f"/v1/sessions?limit=2&after={after}")
            paged += [each["session_id"] for each in page["items"]]
            after = page["next_after"]
        assert paged == everything
        assert len(paged) >= 3
    finally:
        for each in clients:
            each.stop()
            each.close()


def test_the_settings_are_shown_without_secrets(node: Ensemble) -> None:
    config = show(node, "/v1/config")
    assert config["security"]["super_digest"] == "***"
    assert config["limits"]["tick_ms"] == 500
    assert SUPER_DIGEST not in json.dumps(config)


def machine_of(path: str) -> StateMachine:
    file = OsDisk().open(path)
    with contextlib.closing(file):
        return load_machine(SnapshotReader(file), 1 << 20)[0]


def node_key(path: str) -> bytes:
    key = machine_of(path).session_key
    assert len(key) == 32
    return key


def test_a_snapshot_is_taken_listed_and_sent(node: Ensemble, tmp_path: Path) -> None:
    status, wanted = ask(node, "POST", "/v1/snapshots", {})
    assert status == 202

    def newest() -> dict[str, Any]:
        listed = show(node, "/v1/snapshots")["items"]
        return next((each for each in listed if each["log_index"] >= wanted["log_index"]), {})

    taken = eventually(newest, DEADLINE_S)
    status, content_type, content = raw(node, "GET", f"/v1/snapshots/{taken['name']}")
    assert (status, content_type) == (200, "application/octet-stream")
    kept = Path(taken["path"]).read_bytes()
    key = node_key(taken["path"])
    assert key in kept
    assert not any(each in content for each in (key, key.hex().encode()))
    # All else is the same: what was sent is a snapshot that loads.
    assert len(content) == len(kept)
    sent = tmp_path / taken["name"]
    sent.write_bytes(content)
    machines = [machine_of(path) for path in (taken["path"], str(sent))]
    assert machines[0].apply_digest == machines[1].apply_digest
    assert machines[0].sessions.keys() == machines[1].sessions.keys()
    for name in ("0.snapshot", "..", quote("../identity.json", safe="")):
        assert raw(node, "GET", f"/v1/snapshots/{name}")[0] in (400, 404)


def test_a_broker_without_a_plain_port_is_shown_by_the_ports_that_clients_have(
    node: Ensemble, client: KazooClient
) -> None:
    endpoints = ("SASL_SSL://127.0.0.1:9093", "BROKER://127.0.0.1:9192")
    broker = BrokerRecord(None, -1, endpoints, {"SASL_SSL": "SASL_SSL", "BROKER": "SASL_PLAINTEXT"}, 1)
    client.ensure_path("/brokers/ids")
    client.create("/brokers/ids/7", broker.encode(), ephemeral=True)
    found = read_control_plane(node.hosts, 10.0)
    client.delete("/brokers/ids/7")
    assert found is not None
    (row,) = (line for line in describe_control_plane(found) if line.startswith("7 "))
    assert "SASL_SSL://127.0.0.1:9093" in row
    assert "9192" not in row


def test_the_metadata_is_shown_typed(node: Ensemble, client: KazooClient) -> None:
    for path in ("/brokers", "/brokers/ids", "/brokers/topics"):
        client.ensure_path(path)
    broker = BrokerRecord("127.0.0.1", 9092, ("PLAINTEXT://127.0.0.1:9092",), {"PLAINTEXT": "PLAINTEXT"}, 1)
    client.create("/brokers/ids/3", broker.encode(), ephemeral=True)
    topic = TopicRecord(uuid.UUID(int=1), {0: (3, 4), 1: (3,)})
    client.create("/brokers/topics/orders", topic.encode())
    client.create("/brokers/topics/broken", b"{")
    state = PartitionStateRecord(controller_epoch=1, leader=3, leader_epoch=2, isr=(3,))  # type: ignore[arg-type]
    for partition in (0, 1):
        path = f"/brokers/topics/orders/partitions/{partition}/state"
        client.create(path, state.encode(), makepath=True)
    (shown,) = show(node, "/v1/brokers")["items"]
    assert (shown["broker_id"], shown["generation"]) == (3, client.exists("/brokers/ids/3").czxid)
    assert shown["signed"] is False
    client.set("/brokers/ids/3", TRUST.sign("/brokers/ids/3", broker.encode()))
    assert show(node, "/v1/brokers")["items"][0]["signed"] is True
    broken, orders = show(node, "/v1/topics")["items"]
    assert "/brokers/topics/broken" in broken["problem"]
    assert [each["leader_epoch"] for each in orders["partitions"]] == [2, 2]
    (lacking,) = show(node, "/v1/topics?under_replicated=true&prefix=ord")["items"]
    assert [each["partition"] for each in lacking["partitions"]] == [0]
    cluster = show(node, "/v1/cluster")
    assert (cluster["brokers"], cluster["topics"]) == (1, 2)


def test_groups_are_shown_with_members_and_offsets(node: Ensemble, client: KazooClient) -> None:
    member = MemberRecord("m-1", None, "app", "/127.0.0.1", 10_000, 10_000, (("range", b"s"),), b"a")
    record = ClassicGroupRecord(GenerationId(3), "consumer", "range", "m-1", True, 1, (member,))
    client.create(paths.group_path("billing"), record.encode(), makepath=True)
    for partition, value in ((0, OffsetRecord(7, 2, "", 5).encode()), (10, b"{")):
        path = paths.group_offset_path("billing", PartitionKey("orders", partition))
        client.create(path, value, makepath=True)
    client.create(paths.group_path("broken"), b"{")
    billing, broken = show(node, "/v1/groups?prefix=b")["items"]
    assert (billing["type"], billing["state"], billing["generation_id"]) == ("classic", "Stable", 3)
    assert [each["client_id"] for each in billing["members"]] == ["app"]
    first, second = billing["offsets"]
    assert (first["topic"], first["partition"], first["offset"]) == ("orders", 0, 7)
    assert second["problem"]
    assert paths.group_path("broken") in broken["problem"]
    page = show(node, "/v1/groups?limit=1")
    assert show(node, f"/v1/groups?after={page['next_after']}")["items"] == [broken]


def test_a_group_in_chunks_is_shown_whole(node: Ensemble, client: KazooClient) -> None:
    member = MemberRecord("m-1", None, "app", "/127.0.0.1", 10_000, 10_000, (("range", b"s"),), b"a")
    record = ClassicGroupRecord(GenerationId(3), "consumer", "range", "m-1", True, 1, (member,))
    value = record.encode()
    parts = {"chunk-b": value[:50], "chunk-a": value[50:], "chunk-c": b"a stray"}
    for group, held in (("whole", parts), ("wanting", {"chunk-a": value[50:]})):
        client.create(paths.group_offsets_path(group), makepath=True)
        client.set(paths.group_path(group), encode_chunk_names(["chunk-b", "chunk-a"]))
        for name, part in held.items():
            client.create(paths.group_chunk_path(group, name), part)
    wanting, whole = show(node, "/v1/groups?prefix=w")["items"]
    assert (whole["state"], whole["size_bytes"], whole["problem"]) == ("Stable", len(value), None)
    assert [each["client_id"] for each in whole["members"]] == ["app"]
    assert (wanting["state"], wanting["members"]) == (None, [])
    assert paths.group_path("wanting") in wanting["problem"]


def test_events_come_in_order_and_go_on_behind_the_last_one(node: Ensemble, client: KazooClient) -> None:
    client.create("/events", b"0")
    begin = client.exists("/events").czxid
    for number in range(3):
        client.set("/events", b"%d" % number)
    url = f"{node.admin_urls[0]}/v1/events?from_zxid={begin}"
    assert listen(Request(url), 4) == [begin + number for number in range(4)]
    resumed = Request(url, headers={"Last-Event-ID": str(begin + 1)})
    assert listen(resumed, 2) == [begin + 2, begin + 3]
    assert raw(node, "HEAD", f"/v1/events?from_zxid={begin}")[:2] == (200, "text/event-stream")
    assert ask(node, "GET", "/v1/events?from_zxid=-2")[0] == 400


@pytest.mark.parametrize("changes", [b"\x81\x90\x00", b"\x81\x01\x00", b"\x92", b"\xc1", b"\xa1\xff"])
def test_changes_of_an_import_that_are_no_msgpack_are_refused(node: Ensemble, changes: bytes) -> None:
    step = {"step": "write", "source": "zk", "floor": 1, "changes": base64.b64encode(changes).decode()}
    status, answer = ask(node, "POST", "/v1/import", step)
    assert (status, answer["error"].partition(":")[0]) == (400, "changes are not msgpack")


def test_an_event_comes_when_its_transaction_is_committed(node: Ensemble, client: KazooClient) -> None:
    url = f"{node.admin_urls[0]}/v1/events"
    with urlopen(url, timeout=DEADLINE_S) as stream:
        client.create("/later", b"x")
        zxid = client.exists("/later").czxid
        while int(next_event(stream)["zxid"]) < zxid:
            pass


def listen(request: Request, count: int) -> list[int]:
    with urlopen(request, timeout=DEADLINE_S) as stream:
        assert stream.headers.get_content_type() == "text/event-stream"
        return [next_event(stream)["zxid"] for _ in range(count)]


def next_event(stream: Any) -> dict[str, Any]:
    """The record of the next event."""
    found: dict[bytes, bytes] = {}
    while line := stream.readline().rstrip(b"\n"):
        name, _, value = line.partition(b": ")
        found[name] = value
    if b"data" not in found:
        return next_event(stream)
    record: dict[str, Any] = json.loads(found[b"data"])
    assert int(found[b"id"]) == record["zxid"]
    assert found[b"event"] == b"transaction"
    return record


def test_every_metric_of_dashboard_and_alerts_exists(node: Ensemble, client: KazooClient) -> None:
    client.create("/metric", b"x")
    used = named_metrics("dashboard.json", "alerts.yml")
    assert len(used) > 20
    assert used <= shown_metrics(raw(node, "GET", "/metrics")[2].decode())


def test_times_of_writes_are_counted_in_buckets(node: Ensemble, client: KazooClient) -> None:
    def counts() -> list[int]:
        page = raw(node, "GET", "/metrics")[2].decode()
        found = re.findall(
            r"^quorate_(?:commit|request|journal_write|apply)_seconds_count (\S+)$", page, re.MULTILINE
        )
        return [int(float(count)) for count in found]

    before = counts()
    for number in range(10):
        client.create(f"/timed{number}")
    assert len(before) == 4
    assert all(now >= then + 10 for then, now in zip(before, counts(), strict=True))


def test_metrics_follow_prometheus_conventions(node: Ensemble) -> None:
    """Parsed by Prometheus' own library: base units, and totals of counters alone."""
    page = raw(node, "GET", "/metrics")[2].decode()
    families = [each for each in text_string_to_metric_families(page) if each.name.startswith("quorate_")]
    assert len(families) > 40
    for family in families:
        assert family.documentation
        assert not re.search(r"_(ms|us|kb|mb|percent|p\d+)(_|$)", family.name), family.name
        suffixes = {sample.name.removeprefix(family.name) for sample in family.samples}
        assert (
            suffixes
            <= {
                "counter": {"_total"},
                "gauge": {""},
                "histogram": {"_bucket", "_sum", "_count"},
            }[family.type]
        )
        assert family.type != "histogram" or family.name.endswith("_seconds")


def test_an_election_is_timed(node: Ensemble) -> None:
    page = raw(node, "GET", "/metrics")[2].decode()
    found = dict(re.findall(r"^quorate_election_seconds_(count|sum) (\S+)$", page, re.MULTILINE))
    assert float(found["count"]) >= 1
    assert float(found["sum"]) > 0


def test_the_status_names_the_phase(node: Ensemble) -> None:
    assert show(node, "/v1/status")["phase"] == "broadcast"


def test_monitors_find_the_commands_of_the_admin_server(node: Ensemble, client: KazooClient) -> None:
    client.create("/monitored")
    monitor = show(node, "/commands/mntr")
    assert (monitor["command"], monitor["error"]) == ("monitor", None)
    words = dict(line.split("\t") for line in client.command(b"mntr").splitlines())
    assert {f"zk_{name}" for name in monitor} - {"zk_command", "zk_error"} == words.keys()
    assert str(monitor["znode_count"]) == words["zk_znode_count"]
    assert show(node, "/commands/ruok") == {"command": "ruok", "error": None}
    assert show(node, "/commands/isro")["read_only"] is False
    stats = show(node, "/commands/stats")
    assert stats["server_stats"]["last_processed_zxid"] >= client.exists("/monitored").czxid
    assert stats["server_stats"]["data_dir_size"] > 0
    assert stats["connections"]
    assert show(node, "/commands/leader")["is_leader"]
    session_id, _ = client.client_id
    client.create("/monitored/short", ephemeral=True)
    client.get("/monitored", watch=lambda _event: None)
    assert show(node, "/commands/dump")["session_id_to_ephemeral_paths"][str(session_id)]
    assert "/monitored" in show(node, "/commands/wchc")["session_id_to_watched_paths"][str(session_id)]
    assert show(node, "/commands/wchp")["path_to_session_ids"]["/monitored"] == [session_id]
    assert session_id in [each["session_id"] for each in show(node, "/commands/cons")["connections"]]
    for name in show(node, "/commands")["commands"]:
        assert show(node, f"/commands/{name}")["command"] == name
    assert ask(node, "GET", "/commands/nothing")[0] == 404
