"""Members come, go, lose their disks and lose their majority, with real processes and clients that write.

What is asked goes over HTTP or the command line to any node. Every acknowledged write must be there
afterwards, and clients of nodes that stay see no error. Source: docs/internals/consensus.md, "Membership";
docs/reference/http.md.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError

from quorum.raft.journal.note import NOTE_NAME
from quorum.wire.protocol import XID_AUTH, XID_PING
from quorum.wire.requests import PING_FRAME, ConnectRequest, Reconfig, encode_auth, encode_connect
from tests.support.leader_changes import SteadyWriter
from tests.support.nodes import QUICK_SESSIONS, QuorateNodes, Settings, eventually
from tests.support.wire_load import GET_DATA, SET_DATA, Connection, decode_get, read_body, set_body
from tests.support.zookeeper_frames import encode_reconfig

DEADLINE_S = 30.0
#: acknowledgements that every writer must get between two changes
WRITES_BETWEEN = 50
ZXID_JUMP = 1 << 32


def done(
    nodes: QuorateNodes, asked: int, method: str, path: str, fields: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Ask a node for a change until it is not told to try again (503), and return the answer to it."""

    def ask() -> dict[str, Any]:
        code, answer = nodes.change(asked, method, path, fields)
        if code == 503 and answer["definite"] and answer["retriable"]:
            return {}
        assert code == 200, answer
        return answer

    return eventually(ask, DEADLINE_S, f"{method} {path} {fields} at node {asked}")


def quorate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line."""
    command = [sys.executable, "-m", "quorum", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def members(nodes: QuorateNodes, asked: int) -> dict[int, dict[str, Any]]:
    return {int(row["node_id"]): row for row in nodes.status(asked)["members"]}


def voters(nodes: QuorateNodes, asked: int) -> set[int]:
    return {node_id for node_id, row in members(nodes, asked).items() if row["voter"]}


def reason(nodes: QuorateNodes, node_id: int) -> str:
    return str(json.loads(nodes.get(node_id, "/readyz")[1])["reason"])


def go_on(writers: list[SteadyWriter]) -> None:
    """Wait until every writer got more acknowledgements; none may have ended."""
    before = [writer.acknowledged for writer in writers]

    def advanced() -> bool:
        errors = [writer.error for writer in writers if writer.error]
        if errors:
            pytest.fail(f"a client of a node that stays saw an error: {errors}")
        pairs = zip(writers, before, strict=True)
        return all(writer.acknowledged >= count + WRITES_BETWEEN for writer, count in pairs)

    eventually(advanced, DEADLINE_S, "every writer goes on")


def join(nodes: QuorateNodes, node_id: int, asked: int) -> None:
    """Add a node through another one, and wait until it votes."""
    nodes.new_node(node_id)
    nodes.start_node(node_id, "--join")
    address = nodes.peer_address(node_id)
    answer = done(nodes, asked, "POST", "/v1/members", {"node_id": node_id, "address": address})
    assert {"node_id": node_id, "address": address}.items() <= answer["members"][-1].items()
    nodes.wait_ready(node_id)
    eventually(lambda: node_id in voters(nodes, asked), DEADLINE_S)


@pytest.fixture
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes() as running:
        yield running


@pytest.fixture(scope="module")
def members_that_stay() -> Iterator[QuorateNodes]:
    with QuorateNodes() as running:
        yield running


@pytest.fixture
def stable(members_that_stay: QuorateNodes) -> QuorateNodes:
    """Three ready nodes, shared: a test may kill any of them, and changes no member."""
    for node_id in members_that_stay.node_ids:
        if not members_that_stay.running(node_id):
            members_that_stay.start_node(node_id)
    members_that_stay.wait_ready()
    return members_that_stay


@pytest.fixture(scope="module")
def lone() -> Iterator[QuorateNodes]:
    """One node, shared by tests that change nothing."""
    with QuorateNodes(nodes=1) as running:
        yield running


def test_three_become_five_and_three_again_while_clients_write(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    stays, other = (node_id for node_id in nodes.node_ids if node_id != leader)
    writers = [SteadyWriter(nodes.host(stays), f"/at-{stays}-{window}", window=window) for window in (1, 64)]
    for joining, asked in ((4, stays), (5, leader)):
        join(nodes, joining, asked)
        writers.append(SteadyWriter(nodes.host(joining), f"/at-{joining}", window=16))
        go_on(writers)
    assert voters(nodes, 4) == {1, 2, 3, 4, 5}
    for leaving, asked in ((leader, 4), (other, other)):
        answer = done(nodes, asked, "DELETE", f"/v1/members?node_id={leaving}")
        assert leaving not in {row["node_id"] for row in answer["members"]}
        eventually(lambda: "is no member" in reason(nodes, leaving), DEADLINE_S)  # noqa: B023 - within the turn
        go_on(writers)
        nodes.stop(leaving)
    assert voters(nodes, stays) == {stays, 4, 5}
    go_on(writers)
    nodes.kill(nodes.leader())
    left = [node_id for node_id in (stays, 4, 5) if nodes.running(node_id)]
    eventually(lambda: nodes.leader() in left, DEADLINE_S, "two of the three voters go on")
    for writer in writers:
        writer.stop()
        for node_id in left:
            writer.check(nodes.host(node_id))
    nodes.one_digest()


def test_a_node_that_slept_through_it_finds_members_that_it_does_not_know(nodes: QuorateNodes) -> None:
    """Node 3 comes back when nobody whom its log or its configuration names is left."""
    done(nodes, 1, "POST", "/v1/leader", {"node_id": 1})
    nodes.stop(3)
    for joining in (4, 5):
        join(nodes, joining, 1)
    done(nodes, 1, "POST", "/v1/leader", {"node_id": 4})
    writer = SteadyWriter(nodes.host(5), "/written", window=16)
    for leaving in (1, 2):
        done(nodes, 4, "DELETE", f"/v1/members?node_id={leaving}")
        nodes.stop(leaving)
    assert voters(nodes, 4) == {3, 4, 5}
    nodes.start_node(3)
    nodes.wait_ready(3)
    go_on([writer])
    writer.stop()
    writer.check(nodes.host(3))
    nodes.kill(5)
    with Connection(nodes.host(3)) as connection:
        assert connection.call(SET_DATA, set_body("/written", b"3 votes"))[0] == 0
    nodes.one_digest()


def test_a_lost_disk_is_refused_until_it_is_replaced(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    lost, stays = (node_id for node_id in nodes.node_ids if node_id != leader)
    writer = SteadyWriter(nodes.host(stays), "/written", window=16)
    before = SteadyWriter(nodes.host(lost), "/before")
    go_on([writer, before])
    before.stop()
    nodes.kill(lost)
    old_disk = nodes.nodes[lost].data_dir.rename(nodes.nodes[lost].folder / "old")
    # What a repetition should name cannot be read from a disk that is lost: the members tell it.
    old_incarnation = members(nodes, stays)[lost]["incarnation"]
    assert old_incarnation == json.loads((old_disk / "identity.json").read_text())["incarnation"]
    code, output = nodes.run_to_end(lost)
    assert code == 1
    assert "--join" in output
    nodes.start_node(lost, "--join")
    eventually(lambda: "waits to be added" in reason(nodes, lost), DEADLINE_S)
    go_on([writer])
    told = "its incarnation counts for nothing"
    eventually(lambda: members(nodes, nodes.leader())[lost]["role"] == "refused", DEADLINE_S, told)
    assert nodes.status(lost)["applied_index"] == 0

    def replaced() -> list[str]:
        ended = quorate("members", "replace", str(lost), "--admin", nodes.admin_url(stays))
        return [ended.stdout] if ended.returncode == 0 else []

    output = eventually(replaced, DEADLINE_S)[0]
    assert f"the recorded disk of node {lost} never counts again" in output
    nodes.wait_ready(lost)
    assert voters(nodes, lost) == {1, 2, 3}
    new_incarnation = members(nodes, lost)[lost]["incarnation"]
    arguments = ("--incarnation", str(old_incarnation), "--admin", nodes.admin_url(stays))
    repeated = quorate("members", "replace", str(lost), *arguments)
    assert f"the disk {old_incarnation} never counts again" in repeated.stdout
    assert f"the disk of node {lost} that counts has the incarnation {new_incarnation}" in repeated.stdout
    # What the old disk sent to the log has the same node id: it must not be taken for the new one's.
    after = SteadyWriter(nodes.host(lost), "/again")
    go_on([writer, after])
    for each in (writer, after):
        each.stop()
    for each in (writer, before, after):
        each.check(nodes.host(lost))
    nodes.one_digest()

    # The old disk comes back: its log is good, but its incarnation is retired for good.
    nodes.stop(lost)
    shutil.rmtree(nodes.nodes[lost].data_dir)
    old_disk.rename(nodes.nodes[lost].data_dir)
    nodes.start_node(lost)
    refused = json.loads((nodes.nodes[lost].data_dir / "identity.json").read_text())["incarnation"]
    eventually(lambda: members(nodes, nodes.leader())[lost]["refused"] == refused, DEADLINE_S)
    with Connection(nodes.host(stays)) as connection:
        assert connection.call(SET_DATA, set_body("/written", b"after"))[0] == 0
    eventually(lambda: members(nodes, nodes.leader())[lost]["role"] == "refused", DEADLINE_S)
    assert nodes.get(lost, "/readyz")[0] == 503


def test_one_survivor_goes_on_as_a_new_cluster(nodes: QuorateNodes) -> None:
    writer = SteadyWriter(nodes.host(1), "/written", window=16)
    go_on([writer])
    writer.stop()
    before = nodes.status(1)
    for lost in (2, 3):
        nodes.kill(lost)
        shutil.rmtree(nodes.nodes[lost].data_dir)
    nodes.kill(1)
    told = len(nodes.nodes[1].output_path.read_bytes())
    nodes.start_node(1, "--force-new-cluster")
    nodes.wait_ready(1)
    story = nodes.nodes[1].output_path.read_text()[told:]
    assert "FORCED NEW CLUSTER: node 1 goes on alone" in story
    assert "LOST" in story
    after = nodes.status(1)
    assert after["cluster_id"] not in (None, before["cluster_id"])
    assert after["zxid"] > before["zxid"] + ZXID_JUMP - 1
    assert voters(nodes, 1) == {1}
    writer.check(nodes.host(1))

    # Once more changes nothing, also when the option stays in a start script after others have joined.
    # What `quorate up` starts with --bootstrap on an empty directory is let in as well.
    nodes.kill(1)
    nodes.start_node(1, "--force-new-cluster")
    nodes.wait_ready(1)
    assert nodes.status(1)["cluster_id"] == after["cluster_id"]
    for joining, option in ((2, "--join"), (3, "--bootstrap")):
        nodes.start_node(joining, option)
        fields = {"node_id": joining, "address": nodes.peer_address(joining)}
        done(nodes, 1, "POST", "/v1/members", fields)
        nodes.wait_ready(joining)
        assert nodes.status(joining)["cluster_id"] == after["cluster_id"]
        writer.check(nodes.host(joining))
    nodes.kill(1)
    nodes.start_node(1, "--force-new-cluster")
    nodes.wait_ready(1)
    assert voters(nodes, 1) == {1, 2, 3}
    assert "--force-new-cluster is ignored" in nodes.nodes[1].output_path.read_text()
    nodes.kill(2)
    with Connection(nodes.host(3)) as connection:
        connection.sync()
        error, _, body = connection.call(GET_DATA, read_body("/written"))
        assert error == 0
        assert decode_get(body)[1].version >= writer.acknowledged
    nodes.start_node(2)
    nodes.wait_ready()
    nodes.one_digest()


def test_a_node_alone_whose_note_is_gone_goes_on_from_a_backup() -> None:
    with QuorateNodes(nodes=1) as nodes:
        writer = SteadyWriter(nodes.host(1), "/written", window=16)
        go_on([writer])
        writer.stop()
        nodes.stop(1)
        backup = nodes.nodes[1].data_dir.with_name("backup")
        shutil.copytree(nodes.nodes[1].data_dir, backup)
        note = nodes.nodes[1].data_dir / "journal" / NOTE_NAME
        note.unlink()
        for options in ((), ("--force-new-cluster",)):
            code, output = nodes.run_to_end(1, *options)
            assert code == 1
            assert f"{note} is damaged" in output
            assert "a backup of its data directory" in output
        shutil.rmtree(nodes.nodes[1].data_dir)
        backup.rename(nodes.nodes[1].data_dir)
        nodes.start_node(1)
        nodes.wait_ready(1)
        writer.check(nodes.host(1))


def test_a_member_whose_note_is_gone_is_replaced(nodes: QuorateNodes) -> None:
    nodes.stop(3)
    (nodes.nodes[3].data_dir / "journal" / NOTE_NAME).unlink()
    code, output = nodes.run_to_end(3)
    assert code == 1
    assert "`quorate members replace`" in output
    shutil.rmtree(nodes.nodes[3].data_dir)
    done(nodes, 1, "POST", "/v1/members", {"node_id": 3, "replace": True})
    nodes.start_node(3, "--join")
    nodes.wait_ready(3)
    eventually(lambda: voters(nodes, 1) == {1, 2, 3}, DEADLINE_S)


def test_a_survivor_without_data_is_refused(nodes: QuorateNodes) -> None:
    nodes.stop(3)
    shutil.rmtree(nodes.nodes[3].data_dir)
    code, output = nodes.run_to_end(3, "--force-new-cluster")
    assert code == 1
    assert "Traceback" not in output
    assert str(nodes.nodes[3].data_dir) in output
    assert not nodes.nodes[3].data_dir.exists(), "nothing was written"
    code, output = nodes.run_to_end(3, "--force-new-cluster", "--join")
    assert code == 2
    assert "not allowed with" in output


def super_digest() -> str:
    """The setting that makes super:pw the superuser."""
    digest = base64.b64encode(hashlib.sha1(b"super:pw", usedforsecurity=False).digest()).decode()
    return f"super:{digest}"


def test_zookeeper_clients_read_watch_and_change_the_members() -> None:
    """getConfig and reconfig; kazoo's calls, answered as ZooKeeper 3.9.5 answers them."""
    settings: Settings = {**QUICK_SESSIONS, "security": {"super_digest": super_digest()}}
    with QuorateNodes(settings=settings) as nodes, contextlib.ExitStack() as stack:
        clients = [
            KazooClient(nodes.host(asked), auth_data=proof)
            for asked, proof in ((1, []), (2, [("digest", "super:pw")]))
        ]
        for client in clients:
            stack.callback(client.close)
            stack.callback(client.stop)
            client.start()
        anyone, boss = clients
        events: list[tuple[str, str]] = []
        config = "/zookeeper/config"
        content, stat = anyone.get(config, watch=lambda event: events.append((event.type, event.path)))
        assert content.endswith(b"\nversion=0")
        assert content.count(b":participant\n") == 3
        assert (stat.version, stat.aversion, stat.czxid) == (-1, -1, 0)
        with pytest.raises(NoAuthError):
            anyone.reconfig(None, "3", None)
        with pytest.raises(BadVersionError):
            boss.reconfig(None, "3", None, from_config=77)

        nodes.new_node(4)
        nodes.start_node(4, "--join")
        port = nodes.nodes[4].peer_port
        joining = f"server.4=127.0.0.1:{port}:{port}:participant;127.0.0.1:{nodes.nodes[4].client_port}"
        content, stat = boss.reconfig(joining, None, None, from_config=0)
        assert f"server.4=127.0.0.1:{port}:0:observer\n".encode() in content
        assert content.endswith(b"version=%x" % stat.mzxid)
        eventually(lambda: events == [("CHANGED", config)], DEADLINE_S, "the watch fired once")
        nodes.wait_ready(4)
        boss.sync(config)
        content, stat = boss.get(config)
        assert content.count(b":participant\n") == 4, "it was promoted"
        version = int(content.rpartition(b"version=")[2], 16)
        assert version == stat.mzxid
        content, stat = boss.reconfig(None, "4", None, from_config=version)
        assert content.count(b":participant\n") == 3
        assert boss.create("/next", b"", include_data=True)[1].czxid == stat.mzxid + 1


def received(connection: socket.socket) -> tuple[int, int]:
    """Take one frame: its xid and its error."""
    with connection.makefile("rb", buffering=0) as stream:
        length = int.from_bytes(stream.read(4), "big")
        frame = b""
        while len(frame) < length:
            part = stream.read(length - len(frame))
            assert part, "the connection has ended"
            frame += part
    return int.from_bytes(frame[:4], "big", signed=True), int.from_bytes(frame[12:16], "big", signed=True)


def test_pings_behind_a_reconfig_that_waits_for_a_majority_are_answered() -> None:
    settings: Settings = {
        **QUICK_SESSIONS,
        # the leader stays one while the others stand still
        "raft": {"election_timeout_ms": [4000, 6000]},
        "security": {"super_digest": super_digest()},
    }
    with QuorateNodes(settings=settings) as nodes:
        leader = nodes.leader()
        leaving, staying = (node_id for node_id in nodes.node_ids if node_id != leader)
        with socket.create_connection(("127.0.0.1", nodes.nodes[leader].client_port), DEADLINE_S) as client:
            client.sendall(encode_connect(ConnectRequest(0, 0, 20_000, 0, bytes(16), False)))
            received(client)
            client.sendall(encode_auth("digest", b"super:pw"))
            assert received(client) == (XID_AUTH, 0)
            for node_id in (leaving, staying):
                nodes.pause(node_id)
            client.sendall(encode_reconfig(1, Reconfig(None, str(leaving), None, -1)) + PING_FRAME)
            assert received(client) == (XID_PING, 0)
            client.sendall(PING_FRAME)
            assert received(client) == (XID_PING, 0)
            for node_id in (leaving, staying):
                nodes.resume(node_id)
            assert received(client) == (1, 0)
            client.sendall(PING_FRAME)
            assert received(client) == (XID_PING, 0)
        assert voters(nodes, leader) == {leader, staying}


def test_an_accepted_change_that_cannot_commit_is_unknown_not_failed(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    frozen = [node_id for node_id in nodes.node_ids if node_id != leader]
    for node_id in frozen:
        nodes.pause(node_id)
    code, answer = nodes.change(leader, "POST", "/v1/members", {"node_id": 4, "address": "127.0.0.1:1"})
    for node_id in frozen:
        nodes.resume(node_id)
    if code == 503:
        assert answer["definite"], "the leader had found out before it was asked"
        return
    assert (code, answer["definite"]) == (504, False), answer
    assert "outcome unknown" in answer["error"]
    nodes.wait_ready()


def test_a_hand_over_to_a_node_that_stands_still_is_told_as_soon_as_it_is_given_up() -> None:
    """Not by the deadline of requests, which is longer than anybody here waits."""
    raft: dict[str, object] = {"election_timeout_ms": [4000, 5000], "forward_deadline_ms": 60_000}
    with QuorateNodes(settings={**QUICK_SESSIONS, "raft": raft}) as nodes:
        leader = nodes.leader()
        asked, still = (node_id for node_id in nodes.node_ids if node_id != leader)
        nodes.pause(still)
        code, answer = nodes.change(asked, "POST", "/v1/leader", {"node_id": still})
        assert (code, answer["definite"]) == (504, False), answer
        told = f"node {still} did not take over in time, and node {leader} leads term "
        assert told in answer["error"]
        assert "it may still take over" in answer["remedy"]
        # By now its silence is known.
        code, answer = nodes.change(leader, "POST", "/v1/leader", {"node_id": still})
        assert code == 409, answer
        assert "it has been silent for" in answer["error"]
        nodes.resume(still)
        nodes.wait_ready()


def test_leadership_goes_where_it_is_asked_to_whoever_is_asked(stable: QuorateNodes) -> None:
    nodes = stable
    writers = [SteadyWriter(nodes.host(node_id), f"/at-{node_id}", window=8) for node_id in nodes.node_ids]
    for target in (2, 3, 1):
        for asked in nodes.node_ids:
            answer = done(nodes, asked, "POST", "/v1/leader", {"node_id": target})
            assert answer["leader_id"] == target == nodes.status(asked)["leader_id"]
        go_on(writers)
    for writer in writers:
        writer.stop()
        assert not writer.error
        writer.check(nodes.host(1))
    nodes.one_digest()


BAD: list[tuple[str, str, bytes | None, int, str]] = [
    ("POST", "/v1/leader", None, 400, "JSON"),
    ("POST", "/v1/leader", b"{", 400, "JSON"),
    ("POST", "/v1/leader", b"[" * 100_000, 413, "bytes"),
    ("POST", "/v1/leader", b"[" * 5000, 400, "JSON"),
    ("POST", "/v1/leader", b"[1]", 400, "object"),
    ("POST", "/v1/leader", b"{}", 400, "node_id"),
    ("POST", "/v1/leader", b'{"node_id": "2"}', 400, "'2'"),
    ("POST", "/v1/leader", b'{"node_id": true}', 400, "True"),
    ("POST", "/v1/leader", b'{"node_id": 2.0}', 400, "2.0"),
    ("POST", "/v1/leader", b'{"node_id": 0}', 400, "node_id = 0"),
    ("POST", "/v1/leader", b'{"node_id": 256}', 400, "256"),
    ("POST", "/v1/leader", b'{"node_id": 2, "force": 1}', 400, "'force'"),
    ("POST", "/v1/leader", b'{"node_id": 9}', 404, "node 9"),
    ("POST", "/v1/leader?node_id=1", b'{"node_id": 1}', 400, "'node_id'"),
    ("DELETE", "/v1/leader", None, 405, "DELETE"),
    ("POST", "/v1/members", b"", 400, "JSON"),
    ("POST", "/v1/members", b"\xff", 400, "JSON"),
    ("POST", "/v1/members", b'{"node_id": 4}', 400, "address"),
    ("POST", "/v1/members", b'{"address": "h:1"}', 400, "node_id"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": 7}', 400, "address = 7"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": ""}', 400, "address = ''"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "h"}', 400, "'h'"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "h:0"}', 400, "h:0"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "h:99999"}', 400, "h:99999"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "\\ud800:1"}', 400, "address"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "127.0.0.1;2181:99"}', 400, "host"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "server.1=x:5"}', 400, "host"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "x\\u0001:5"}', 400, "host"),
    ("POST", "/v1/members", b'{"node_id": 4, "address": "%s:1"}' % (b"h" * 400), 400, "300"),
    ("POST", "/v1/members", b'{"node_id": 4, "replace": false}', 400, "replace = False"),
    ("POST", "/v1/members", b'{"node_id": 4, "replace": true, "address": "h:1"}', 400, "both"),
    ("POST", "/v1/members", b'{"node_id": 4, "replace": true, "incarnation": "abc"}', 400, "'abc'"),
    (
        "POST",
        "/v1/members",
        b'{"node_id": 4, "address": "h:1", "incarnation": "%s"}' % (b"ab" * 16),
        400,
        "without replace",
    ),
    ("POST", "/v1/members", b'{"node_id": 9, "replace": true}', 404, "node 9"),
    ("POST", "/v1/members", b'{"node_id": 1, "address": "elsewhere:1"}', 409, "elsewhere:1"),
    ("DELETE", "/v1/members", None, 400, "node_id"),
    ("DELETE", "/v1/members?node_id=1&node_id=2", None, 400, "2 times"),
    ("DELETE", "/v1/members?node_id=x", None, 400, "'x'"),
    ("DELETE", "/v1/members?node_id=01", None, 400, "'01'"),
    ("DELETE", "/v1/members?node_id=-1", None, 400, "-1"),
    ("DELETE", "/v1/members?node_id=1&now=1", None, 400, "'now'"),
    ("DELETE", "/v1/members?node_id=9", None, 404, "node 9"),
    ("PUT", "/v1/members", b"{}", 405, "PUT"),
]


def test_bad_requests_are_refused_by_every_node_and_change_nothing(stable: QuorateNodes) -> None:
    nodes = stable
    leader = nodes.leader()
    before = nodes.status(leader)["zxid"], members(nodes, leader).keys()
    for asked in (leader, leader % 3 + 1):
        for method, path, body, status, word in BAD:
            case = f"{method} {path} {body!r} at node {asked}"
            code, content = nodes.request(asked, method, path, body)
            assert code == status, (case, content)
            answer = json.loads(content)
            assert word in answer["error"], (case, answer)
            assert answer["remedy"], (case, answer)
    assert (nodes.status(leader)["zxid"], members(nodes, leader).keys()) == before
    assert nodes.leader() == leader


@pytest.mark.parametrize("action", ["replace", "remove"])
def test_the_only_voter_cannot_go_and_the_command_says_what_to_do(lone: QuorateNodes, action: str) -> None:
    before = members(lone, 1)[1]
    ended = quorate("members", action, "1", "--admin", lone.admin_url(1))
    assert ended.returncode == 1
    assert ended.stdout == ""
    error, remedy = ended.stderr.splitlines()
    assert error == f"error: node 1 cannot be {action.rstrip('e')}ed: it is the only voter"
    assert remedy.startswith("remedy: add another one first")
    # The request and its refusal are in the log.
    assert members(lone, 1) == {1: {**before, "match_index": before["match_index"] + 2}}


def test_a_voter_that_is_added_again_is_not_called_a_learner(lone: QuorateNodes) -> None:
    address = lone.peer_address(1)
    told = quorate("members", "add", "1", address, "--admin", lone.admin_url(1)).stdout
    assert told.startswith(f"node 1 at {address} is a voter already, nothing was changed")
    assert "quorate members replace 1" in told


def test_a_follower_names_the_leader_to_ask_for_the_lag(stable: QuorateNodes) -> None:
    nodes = stable
    leader = nodes.leader()
    follower = next(node_id for node_id in nodes.node_ids if node_id != leader)
    for command in (("members", "list"), ("status",)):
        told = quorate(*command, "--admin", nodes.admin_url(follower)).stdout.splitlines()
        assert f"ask node {leader} with --admin http://127.0.0.1:" in told[-1]
        assert "known to the leader" not in quorate(*command, "--admin", nodes.admin_url(leader)).stdout


def test_what_cannot_be_done_now_is_refused_with_the_reason(stable: QuorateNodes) -> None:
    nodes = stable
    leader = nodes.leader()
    follower, other = (node_id for node_id in nodes.node_ids if node_id != leader)
    code, answer = nodes.change(follower, "POST", "/v1/members", {"node_id": leader, "replace": True})
    assert (code, answer["definite"], answer["retriable"]) == (409, True, False)
    assert "hand leadership over" in answer["remedy"]
    again = {"node_id": other, "address": nodes.peer_address(other)}
    assert nodes.change(follower, "POST", "/v1/members", again)[0] == 200, "repeating an addition is harmless"

    nodes.kill(other)

    codes = []

    def refused() -> dict[str, Any]:
        told, said = nodes.change(leader, "DELETE", f"/v1/members?node_id={follower}")
        codes.append(told)
        return said if told == 409 else {}

    answer = eventually(refused, DEADLINE_S)
    assert 200 not in codes, "of two voters that would be left one is dead"
    assert f"bring node {other} back first, or remove what is gone for good" in answer["remedy"]
    assert members(nodes, leader)[other]["role"] == "unreachable"
    eventually(lambda: nodes.change(leader, "POST", "/v1/leader", {"node_id": other})[0] == 409, DEADLINE_S)

    nodes.kill(follower)

    def alone() -> dict[str, Any]:
        told, said = nodes.change(leader, "DELETE", f"/v1/members?node_id={other}")
        codes.append(told)
        return said if told == 503 and "no leader" in said["error"] else {}

    answer = eventually(alone, DEADLINE_S)
    assert 200 not in codes
    assert (answer["definite"], answer["retriable"]) == (True, True)
    ended = quorate("members", "remove", str(other), "--admin", nodes.admin_url(leader))
    assert ended.returncode == 1
    assert "no leader is known" in ended.stderr
    assert "remedy:" in ended.stderr
    told = quorate("members", "list", "--json", "--admin", nodes.admin_url(leader))
    assert {row["node_id"]: row["role"] for row in json.loads(told.stdout)["members"]}[
        follower
    ] == "unreachable"
