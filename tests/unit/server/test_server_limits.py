"""How much one connection may ask for: what stops its reading, how its answers leave, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.acl import ACL_ENTRIES_MAX
from quorum.core.paths import PATH_BYTES_MAX, PATH_SEGMENTS_MAX, SEQUENCE_BYTES_MAX
from quorum.wire.jute import INT, LONG, strings_bytes
from quorum.wire.lookups import encode_looked_at, encode_multi_read, encode_watch_request
from quorum.wire.operations import MULTI_ITEMS_MAX
from quorum.wire.protocol import OpCode
from quorum.wire.requests import (
    PING_FRAME,
    REQUEST_HEAD,
    SetWatches,
    encode_auth,
    encode_command,
    encode_set_watches,
)
from tests.unit.server.frames import (
    EXISTS,
    GET_CHILDREN,
    GET_CHILDREN2,
    GET_DATA,
    create,
    read,
    runs_of,
    set_data,
    xids,
)
from tests.unit.server.memory import MemoryClient, MemoryNode


def test_reading_pauses_at_the_limit_of_outstanding_requests_and_goes_on_below_half() -> None:
    node = MemoryNode(outstanding_requests_max=10)
    client = node.greeted()
    node.replica.holding = True
    client.send(*(create(number, f"/n{number}") for number in range(25)))
    assert client.connection.outstanding == 10
    assert client.is_paused()
    client.send(create(25, "/n25"))
    assert client.connection.outstanding == 10
    node.replica.release(1)
    assert client.connection.outstanding == 10
    assert [len(run) for run in runs_of(node)] == [10, 10]
    node.replica.release()
    node.turn()
    assert not client.is_paused()
    assert xids(client.replies()) == list(range(26))


def test_reading_stays_paused_while_half_of_the_limit_is_outstanding() -> None:
    node = MemoryNode(outstanding_requests_max=10)
    client = node.greeted()
    node.replica.holding = True
    for number in range(11):
        client.send(create(number, f"/n{number}"))
    assert client.is_paused()
    node.replica.release(5)
    assert client.is_paused()
    node.replica.release(1)
    assert not client.is_paused()
    assert client.connection.outstanding == 5


def test_reads_that_wait_count_as_outstanding() -> None:
    node = MemoryNode(outstanding_requests_max=10)
    client = node.greeted()
    node.replica.holding = True
    client.send(create(1, "/a"), *(read(number, EXISTS, "/a") for number in range(2, 30)))
    assert client.connection.outstanding == 10
    assert client.is_paused()
    node.replica.release()
    assert xids(client.replies()) == list(range(1, 30))
    assert client.connection.outstanding == 0


def test_reading_pauses_while_the_node_is_saturated() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    node.replica.full = True
    client.send(create(1, "/a"))
    assert client.is_paused()
    client.send(create(2, "/b"))
    assert len(runs_of(node)) == 1
    node.replica.release()
    node.turn()
    assert len(runs_of(node)) == 1, "the node is saturated although this one's outcome is there"
    node.replica.full = False
    node.advance(50.0)
    assert not client.is_paused()
    assert xids(client.replies()) == [1, 2]


def test_the_session_of_a_held_connection_is_not_silent() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    node.replica.full = True
    client.send(create(1, "/a"))
    sessions = node.replica.sessions
    sessions.take_report(10, 0.0, 0.0)
    node.advance(1000.0)
    assert sessions.take_report(10, 0.0, 0.0) == [client.connection.session_id], "its pings are not read"


def test_a_peer_that_does_not_read_is_not_read_until_it_does() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.stream.pause_writing()
    assert client.is_paused()
    client.stream.resume_writing()
    assert not client.is_paused()


def test_a_peer_that_reads_slowly_is_heard_and_one_that_does_not_read_is_not() -> None:
    """Its pings are not read meanwhile."""
    node = MemoryNode()
    client = node.greeted()
    sessions = node.replica.sessions

    def heard(unsent_bytes: int) -> bool:
        sessions.take_report(10, 0.0, float("inf"))
        client.transport.unsent_bytes = unsent_bytes
        node.frontend.tick(node.frontend.now_ms())
        return client.connection.session_id in sessions.take_report(10, 0.0, 0.0)

    client.stream.pause_writing()
    assert [heard(each) for each in (900_000, 900_000, 899_000, 899_000, 950_000)] == [
        *(False, False, True, False, False)
    ]
    client.stream.resume_writing()
    assert client.connection.session_id in sessions.take_report(10, 0.0, 0.0)
    assert not heard(0)


def test_large_answers_leave_in_portions_and_a_full_peer_is_not_answered_further() -> None:
    node = MemoryNode(frame_bytes_max=1 << 20)
    client = node.greeted()
    client.send(create(0, "/big", b"x" * 400_000))
    client.received()
    client.send(*(read(number, GET_DATA, "/big") for number in range(1, 11)), turn=False)
    first = client.replies()
    assert xids(first) == [1, 2, 3]
    client.stream.pause_writing()
    node.turn()
    assert client.replies() == []
    client.stream.resume_writing()
    node.turn()
    assert xids(client.replies()) == list(range(4, 11))
    assert not client.is_paused()


def test_a_peer_that_lets_too_much_pile_up_is_dropped() -> None:
    node = MemoryNode(outbound_bytes_max=100_000)
    watcher, writer = node.greeted(), node.greeted()
    watcher.stream.pause_writing()
    watcher.transport.unsent_bytes = 100_001
    watcher.stream.queue(b"event")
    node.frontend.end_of_turn()
    assert watcher.transport.aborted
    assert node.frontend.counters.overflows == 1
    writer.send(PING_FRAME)
    assert xids(writer.replies()) == [-2]


def test_answers_that_waited_may_not_exceed_the_bound_either() -> None:
    """They may not wait for later turns: a write behind them is under way, and comes after them."""
    node = MemoryNode(outbound_bytes_max=1_000_000)
    client = node.greeted()
    client.send(create(0, "/big", b"x" * 400_000))
    client.received()
    node.replica.holding = True
    reads = [read(number, GET_DATA, "/big") for number in range(2, 10)]
    client.send(create(1, "/a"), *reads, create(10, "/b"))
    node.replica.release()
    assert client.was_dropped()


def test_large_answers_that_waited_leave_in_portions() -> None:
    node = MemoryNode(outbound_bytes_max=1_500_000)
    client = node.greeted()
    client.send(create(0, "/big", b"x" * 400_000))
    client.received()
    node.replica.holding = True
    client.send(create(1, "/a"), *(read(number, GET_DATA, "/big") for number in range(2, 12)))
    node.replica.holding = False
    node.replica.release()
    assert client.is_paused()
    client.send(create(12, "/b"), turn=False)
    assert xids(client.replies()) == [1, 2, 3, 4]
    assert len(runs_of(node)) == 2, "no write goes to the log before they are answered"
    client.stream.pause_writing()
    node.turn()
    assert client.replies() == [], "the peer does not read"
    client.stream.resume_writing()
    node.turn()
    assert xids(client.replies()) == list(range(5, 13))
    assert not client.is_paused()
    assert client.connection.outstanding == 0
    assert node.frontend.counters.overflows == 0


def test_an_ending_among_answers_that_waited_is_told_and_closes() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(0, "/big", b"x" * 600_000))
    client.received()
    node.replica.holding = True
    reads = [read(number, GET_DATA, "/big") for number in range(2, 7)]
    client.send(create(1, "/a"), *reads, encode_auth("nobody", b""))
    node.replica.holding = False
    node.replica.release()
    while node.step():
        pass
    assert xids(client.replies()) == [1, 2, 3, 4, 5, 6, -4]
    assert client.has_ended()


def test_others_are_served_between_the_answers_that_waited() -> None:
    node = MemoryNode()
    client, other = node.greeted(), node.greeted()
    answered_ms = 6.0

    def now_ms() -> float:
        node.time_ms += answered_ms
        return node.time_ms

    node.replica.holding = True
    client.send(create(1, "/a"), *(read(number, EXISTS, "/a") for number in range(2, 12)))
    other.send(PING_FRAME, turn=False)
    node.replica.holding = False
    node.frontend.now_ms = now_ms
    node.replica.release()
    assert xids(client.replies()) == [1, 2]
    steps = 0
    while node.step():
        steps += 1
    assert xids(client.replies()) == list(range(3, 12))
    assert steps >= 9


@pytest.mark.parametrize(
    ("op", "path", "count"),
    [
        (EXISTS, "/a", 256),
        (GET_DATA, "/a", 256),
        (GET_DATA, "/big", 52),
        (GET_CHILDREN, "/a", 256),
        (GET_CHILDREN, "/many", 43),
    ],
)
def test_only_so_much_waits_before_a_write_that_is_under_way(op: int, path: str, count: int) -> None:
    """That is answered in one turn if a next write is applied with the first: 64 MiB of data at most."""
    node = MemoryNode(outstanding_requests_max=1000, frame_bytes_max=2 << 20)
    client = node.greeted()
    client.send(create(1, "/a"), create(2, "/big", bytes(1 << 20)), create(3, "/many"))
    client.send(encode_command(4, [14, [[1, f"/many/{number}", b"", None, 0] for number in range(2000)]]))
    client.received()
    before = len(runs_of(node))
    node.replica.holding = True
    reads = [read(number, op, path) for number in range(count)]
    client.send(set_data(1000, "/a"), *reads[1:], set_data(1001, "/a"), *reads[:1], set_data(1002, "/a"))
    assert len(runs_of(node)) == before + 2, "all but the last one"
    assert client.is_paused()
    node.replica.holding = False
    node.replica.release()
    node.turn()
    assert xids(client.replies()) == [1000, *range(1, count), 1001, 0, 1002]
    assert not client.is_paused()
    assert node.frontend.counters.overflows == 0


@pytest.mark.parametrize("end", [create(90, "/b"), encode_command(90, [-11]), encode_command(90, [9, "/a"])])
def test_a_long_request_holds_the_next_write_up(end: bytes) -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(*(create(number, f"/m{number}") for number in range(2)))
    names = [[1, f"/m{parent}/{number}", b"", None, 0] for parent in range(2) for number in range(8000)]
    for half in (names[:8000], names[8000:]):
        client.send(encode_command(5, [14, half]))
    client.received()
    before = len(runs_of(node))
    count = encode_looked_at(2, int(OpCode.GET_ALL_CHILDREN_NUMBER), "/m0")
    node.replica.holding = True
    client.send(create(1, "/a"), count, end)
    assert len(runs_of(node)) == before + 1
    node.replica.holding = False
    node.replica.release()
    node.turn()
    assert xids(client.replies()) == [1, 2, 90]


def test_what_waits_for_a_turn_is_not_answered_while_no_leader_is_heard() -> None:
    node = MemoryNode(outbound_bytes_max=1_500_000, contact_loss_ms_max=500)
    client = node.greeted()
    client.send(create(0, "/big", b"x" * 600_000))
    client.received()
    node.replica.holding = True
    client.send(create(1, "/a"), *(read(number, GET_DATA, "/big") for number in range(2, 8)))
    node.replica.holding = False
    node.replica.release()
    assert xids(client.replies()) == [1, 2, 3]
    node.replica.silence_ms = 600.0
    node.time_ms += 600.0
    node.turn()
    assert client.replies() == []
    node.replica.silence_ms = 0.0
    node.advance(0.0)
    assert xids(client.replies()) == list(range(4, 8))


def test_a_run_that_no_entry_can_hold_ends_the_connection_and_reaches_nobody() -> None:
    node = MemoryNode()
    client, other = node.greeted(), node.greeted()
    node.replica.refuses_runs = True
    client.send(create(1, "/a"), create(2, "/b"), read(3, EXISTS, "/a"), PING_FRAME)
    assert client.replies() == []
    assert client.has_ended()
    node.replica.refuses_runs = False
    other.send(create(1, "/a"))
    assert [(reply.xid, reply.err) for reply in other.replies()] == [(1, 0)]


LIMITS_NODE = "/zookeeper/quota/a/zookeeper_limits"


def test_a_multi_has_a_bounded_number_of_operations_and_entries() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(0, "/zookeeper/quota/a"))
    client.received()
    acl = [[31, "ip", "10.0.0.1"], [1, "world", "anyone"]]
    for operations, err in (
        ([[13, "/", -1]] * MULTI_ITEMS_MAX, 0),
        ([[13, "/", -1]] * (MULTI_ITEMS_MAX + 1), -125),
        ([[13, "/", -1]] * (MULTI_ITEMS_MAX - 3) + [[1, "/a", b"", acl, 0]], 0),
        ([[13, "/", -1]] * (MULTI_ITEMS_MAX - 2) + [[1, "/b", b"", acl, 0]], -125),
        ([[13, "/", -1]] * (MULTI_ITEMS_MAX - 32) + [[1, "/b", b"", [[31, "auth", ""]], 0]], -125),
        # Each quota that begins has a whole subtree counted.
        ([[1, LIMITS_NODE, b"", acl[1:], 0], [2, LIMITS_NODE, -1]] * 9, 0),
        ([[1, LIMITS_NODE, b"", acl[1:], 0], [2, LIMITS_NODE, -1]] * 10, -125),
    ):
        client.send(encode_command(1, [14, operations]), PING_FRAME)
        answer, ping = client.replies()
        assert (answer.err, ping.err) == (err, 0)


@pytest.mark.parametrize("op", [1, 7, 15])
def test_an_access_list_has_a_bounded_number_of_entries(op: int) -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(0, "/a"))
    client.received()
    entries = [[1, "ip", f"10.0.{number // 250}.{number % 250}"] for number in range(ACL_ENTRIES_MAX)]
    for acl, err in (
        ([*entries, [16, "world", "anyone"]], -114),
        ([*entries[1:], [31, "world", "anyone"]], 0),
    ):
        command = [7, "/a", acl, -1] if op == 7 else [op, "/b", b"", acl, 0]
        client.send(encode_command(1, command), PING_FRAME)
        assert [reply.err for reply in client.replies()] == [err, 0]


LONG_PATHS = ("/a" * (PATH_SEGMENTS_MAX + 1), "/" + "a" * PATH_BYTES_MAX)
LONGEST_PATHS = ("/a" * PATH_SEGMENTS_MAX, "/" + "a" * (PATH_BYTES_MAX - 1))


def of_every_operation(path: str) -> dict[str, bytes]:
    """Return a request of each operation that names a path."""
    reads = {
        f"read {op}": read(1, op, path, watch=True) for op in (EXISTS, GET_DATA, GET_CHILDREN, GET_CHILDREN2)
    }
    commands: list[list[Any]] = [
        *([op, path, b"", None, 0] for op in (1, 15, 19)),
        *([21, path, b"", None, 5, 1000], [2, path, -1], [5, path, b"", -1], [7, path, None, -1], [9, path]),
        [14, [[13, "/", -1], [5, path, b"", -1]]],
    ]
    writes = {f"write {command[0]}": encode_command(1, command) for command in commands}
    asked = (OpCode.GET_ACL, OpCode.GET_ALL_CHILDREN_NUMBER, OpCode.GET_EPHEMERALS)
    looks = {f"look {op}": encode_looked_at(1, op, path) for op in asked}
    watches = (OpCode.ADD_WATCH, OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES)
    watch_requests = {f"watch {op}": encode_watch_request(1, op, path, 1) for op in watches}
    multi_read = {"multiRead": encode_multi_read(1, [(GET_DATA, "/"), (GET_DATA, path)])}
    return {**reads, **writes, **looks, **watch_requests, **multi_read}


@pytest.mark.parametrize("path", LONG_PATHS, ids=["segments", "bytes"])
@pytest.mark.parametrize("operation", of_every_operation("/"))
def test_a_path_that_is_too_long_is_refused_before_the_log(operation: str, path: str) -> None:
    node = MemoryNode()
    client = node.greeted()
    zxid = node.replica.machine.zxid
    client.send(of_every_operation(path)[operation], PING_FRAME)
    assert [reply.err for reply in client.replies()] == [-8, 0]
    assert runs_of(node) == []
    assert node.replica.machine.zxid == zxid
    assert node.replica.watches.counts() == (0, 0, 0)


@pytest.mark.parametrize("path", LONGEST_PATHS, ids=["segments", "bytes"])
@pytest.mark.parametrize("operation", of_every_operation("/"))
def test_the_longest_path_is_taken_by_every_operation(operation: str, path: str) -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(of_every_operation(path)[operation], PING_FRAME)
    assert [reply.err != -8 for reply in client.replies()] == [True, True]


def test_a_sequential_path_leaves_room_for_its_number() -> None:
    node = MemoryNode()
    client = node.greeted()
    room = "/" + "a" * (PATH_BYTES_MAX - 1 - SEQUENCE_BYTES_MAX)
    client.send(create(1, room, flags=2), create(2, room + "a", flags=2), create(3, room + "a", flags=1))
    assert [reply.err for reply in client.replies()] == [0, -8, 0]


def test_a_set_watches_keeps_no_watch_on_a_path_that_is_too_long() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(encode_set_watches(SetWatches(0, [LONG_PATHS[0]], [LONG_PATHS[1], "/kept"], [])))
    event, reply = client.replies()
    assert event.xid == -1
    assert reply.err == 0
    assert node.replica.watches.paths() == ["/kept"]


def proven(node: MemoryNode) -> MemoryClient:
    """A client that stands for 31 users."""
    client = node.greeted()
    client.send(create(0, "/a"), *(encode_auth("digest", b"user%d:secret" % number) for number in range(31)))
    client.received()
    return client


@pytest.mark.parametrize("kind", ["create", "create2", "createContainer", "createTTL", "setACL", "multi"])
def test_an_auth_in_an_access_list_weighs_as_a_request(kind: str) -> None:
    """A few bytes stand for all that the client has proven, whichever kind of write they come in."""
    node = MemoryNode(outstanding_requests_max=100)
    client = proven(node)
    acl = [[perms, "auth", ""] for perms in range(1, 21)]
    commands: list[list[object]] = [
        {
            "create": [1, f"/n{number}", b"", acl, 0],
            "create2": [15, f"/n{number}", b"", acl, 0],
            "createContainer": [19, f"/n{number}", b"", acl, 4],
            "createTTL": [21, f"/n{number}", b"", acl, 5, 1000],
            "setACL": [7, "/a", [*acl, [31, "world", "anyone"]], -1],
            "multi": [14, [[13, "/", -1], [1, f"/n{number}", b"", acl, 0]]],
        }[kind]
        for number in range(20)
    ]
    before = len(runs_of(node))
    node.replica.holding = True
    client.send(*(encode_command(*numbered) for numbered in enumerate(commands)), create(20, "/plain"))
    assert [len(run) for run in runs_of(node)[before:]] == [5], "with their entries these are 105"
    assert client.is_paused()
    node.replica.release(1)
    node.turn()
    assert [len(run) for run in runs_of(node)[before:]] == [5, 5], "only then the next ones go to the log"
    node.replica.holding = False
    node.replica.release()
    node.turn()
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(number, 0) for number in range(21)]
    assert not client.is_paused()


def test_a_quota_that_begins_weighs_as_a_thousand_requests() -> None:
    node = MemoryNode(outstanding_requests_max=1000)
    client = node.greeted()
    client.send(create(0, "/zookeeper/quota/a"))
    client.received()
    before = len(runs_of(node))
    node.replica.holding = True
    pair = [[1, LIMITS_NODE, b"", [[31, "world", "anyone"]], 0], [2, LIMITS_NODE, -1]]
    client.send(*(encode_command(*numbered) for numbered in enumerate(pair * 3)))
    assert [len(run) for run in runs_of(node)[before:]] == [1]
    node.replica.release(1)
    node.turn()
    assert [len(run) for run in runs_of(node)[before:]] == [1, 2], "what is left, and the next that weighs"
    node.replica.holding = False
    node.replica.release()
    node.turn()
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(number, 0) for number in range(6)]


def test_what_weighs_counts_from_run_to_run_until_it_is_answered() -> None:
    node = MemoryNode(outstanding_requests_max=100)
    client = proven(node)
    acl = [[perms, "auth", ""] for perms in range(1, 21)]
    frames: list[bytes] = []
    for number in range(0, 40, 2):
        frames += (encode_command(number, [1, f"/n{number}", b"", acl, 0]), read(number + 1, EXISTS, "/a"))
    before = len(runs_of(node))
    node.replica.holding = True
    client.send(*frames)
    assert [len(run) for run in runs_of(node)[before:]] == [1] * 5, "five writes of 21 and four reads"
    node.replica.release(2)
    node.turn()
    assert client.is_paused(), "three writes are more than half"
    assert len(runs_of(node)) == before + 5
    node.replica.release(1)
    node.turn()
    assert len(runs_of(node)) > before + 5
    node.replica.holding = False
    node.replica.release()
    node.turn()
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(number, 0) for number in range(40)]
    assert not client.is_paused()


@pytest.mark.parametrize("op", [101, 105])
def test_a_set_watches_that_no_connection_may_have_is_refused_unread(op: int) -> None:
    node = MemoryNode(watches_per_connection_max=3)
    rest = strings_bytes([]) * (2 if op == 105 else 0)
    one, none, two = strings_bytes(["/a"]), strings_bytes(["/b"]), strings_bytes(["/b", "/c"])
    # A length of 0x7f7f7f7f fits in no frame: to read these paths would be a marshalling error.
    unread = b"\x7f" * 16
    for body, refused in (
        (one + none + one + rest, 0),
        (one + none + INT.pack(2) + unread, 1),
        (INT.pack(4) + unread, 2),
        (one + two + one + rest, 3),
    ):
        client = node.greeted()
        frame = REQUEST_HEAD.pack(16 + len(body), -8, op) + LONG.pack(1000) + body
        client.send(create(1, "/a"), frame, PING_FRAME)
        assert client.has_ended() is (refused > 0)
        assert xids(client.replies()) == ([1] if refused else [1, -8, -2])
        assert node.frontend.counters.watches_refused == refused


def test_a_connection_asks_for_one_turn_at_a_time() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(0, "/big", b"x" * 600_000))
    client.received()
    client.send(*(read(number, GET_DATA, "/big") for number in range(1, 7)), turn=False)
    for _ in range(3):
        client.stream.pause_writing()
        client.stream.resume_writing()
    steps = 0
    while node.step():
        steps += 1
    assert xids(client.replies()) == [1, 2, 3, 4, 5, 6]
    assert steps == 3
