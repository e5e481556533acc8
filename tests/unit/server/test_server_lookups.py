"""Lookups at the client port: ACLs, ephemerals, identities, multiRead, and the watches a client can name."""

from __future__ import annotations

import struct

import pytest

from quorum.server.lookups import MULTI_READ_BYTES_MAX
from quorum.wire.jute import JuteReader
from quorum.wire.lookups import (
    MULTI_READ_READS_MAX,
    encode_looked_at,
    encode_multi_read,
    encode_watch_request,
    encode_who_am_i,
)
from quorum.wire.protocol import OpCode
from quorum.wire.requests import SetWatches, encode_auth, encode_command, encode_read, encode_set_watches2
from tests.unit.server.memory import MemoryClient, MemoryNode, Reply

BOB = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="
PRIVATE = [[31, "digest", BOB]]
NO_WATCHER, MARSHALLING, NO_AUTH, NO_NODE, QUOTA = -121, -5, -102, -101, -125


def create(xid: int, path: str, acl: object = None, flags: int = 0) -> bytes:
    return encode_command(xid, [1, path, b"d", acl, flags])


def add_watch(xid: int, path: str, mode: int) -> bytes:
    return encode_watch_request(xid, OpCode.ADD_WATCH, path, mode)


def remove(xid: int, path: str, kind: int) -> bytes:
    return encode_watch_request(xid, OpCode.REMOVE_WATCHES, path, kind)


def check(xid: int, path: str, kind: int) -> bytes:
    return encode_watch_request(xid, OpCode.CHECK_WATCHES, path, kind)


def watch(op: int, path: str) -> bytes:
    return encode_read(100, op, path, True)


def ask(client: MemoryClient, *frames: bytes) -> list[Reply]:
    client.send(*frames)
    return client.replies()


def errors(replies: list[Reply]) -> list[int]:
    return [reply.err for reply in replies]


def told(replies: list[Reply]) -> list[object]:
    return [reply.event if reply.xid == -1 else reply.xid for reply in replies]


def bob(node: MemoryNode) -> MemoryClient:
    client = node.greeted()
    assert errors(ask(client, encode_auth("digest", b"bob:pw"))) == [0]
    return client


def body_of(reply: Reply) -> JuteReader:
    assert reply.err == 0
    return JuteReader(reply.body, 0, len(reply.body), "body")


def test_an_acl_comes_with_the_stat_and_without_digests_for_mere_readers() -> None:
    node = MemoryNode()
    owner, other = bob(node), node.greeted()
    shared = [*PRIVATE, [1, "world", "anyone"]]
    ask(owner, create(1, "/shared", shared), create(2, "/private", PRIVATE))
    [seen] = ask(other, encode_looked_at(3, OpCode.GET_ACL, "/shared"))
    reader = body_of(seen)
    assert reader.acl("acl") == [[31, "digest", "bob:x"], [1, "world", "anyone"]]
    assert reader.stat("stat").data_length == 1
    [whole] = ask(owner, encode_looked_at(3, OpCode.GET_ACL, "/shared"))
    assert body_of(whole).acl("acl") == shared
    refused = [encode_looked_at(4, OpCode.GET_ACL, path) for path in ("/private", "/missing")]
    assert errors(ask(other, *refused)) == [NO_AUTH, NO_NODE]


def test_set_acl_answers_with_the_stat_and_counts_its_own_version() -> None:
    node = MemoryNode()
    client = bob(node)
    ask(client, create(1, "/a"))
    [reply] = ask(client, encode_command(2, [7, "/a", [[31, "auth", ""]], 0]))
    assert body_of(reply).stat("stat").aversion == 1
    [reply] = ask(client, encode_looked_at(3, OpCode.GET_ACL, "/a"))
    assert body_of(reply).acl("acl") == PRIVATE
    assert errors(ask(node.greeted(), encode_command(4, [7, "/a", None, -1]))) == [NO_AUTH]


@pytest.mark.parametrize("seen_as", ["10.0.0.7", "::ffff:10.0.0.7"])
def test_the_address_of_a_client_is_an_identity_of_it(seen_as: str) -> None:
    node = MemoryNode()
    near, far = node.greeted(seen_as), node.greeted("10.0.1.7")
    ask(near, create(1, "/net", [[31, "ip", "10.0.0.0/24"]]))
    reads = encode_read(2, OpCode.GET_DATA, "/net", False)
    assert errors(ask(near, reads) + ask(far, reads)) == [0, NO_AUTH]
    assert errors(ask(near, encode_auth("ip", b"1.2.3.4"))) == [0]
    assert near.connection.identities == [["ip", "10.0.0.7"]]


def test_who_am_i_tells_schemes_and_names_and_no_digest() -> None:
    node = MemoryNode(super_digest="super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
    client = node.greeted("10.0.0.7")
    ask(client, encode_auth("digest", b"bob:pw"), encode_auth("digest", b"super:test"))
    [reply] = ask(client, encode_who_am_i(5))
    reader = body_of(reply)
    proven = [(reader.string("scheme"), reader.string("user")) for _ in range(reader.count("clientInfo", 8))]
    assert sorted(proven) == [("digest", "bob"), ("digest", "super"), ("ip", "10.0.0.7"), ("super", "")]
    assert reader.remaining == 0


def test_the_super_user_passes_every_acl() -> None:
    node = MemoryNode(super_digest="super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
    client = node.greeted()
    ask(bob(node), create(1, "/private", PRIVATE))
    writes = encode_command(2, [5, "/private", b"", -1])
    assert errors(ask(client, writes)) == [NO_AUTH]
    assert errors(ask(client, encode_auth("digest", b"super:test"), writes)) == [0, 0]


def test_ephemerals_are_those_of_the_own_session_and_descendants_are_counted() -> None:
    node = MemoryNode()
    mine, other = node.greeted(), node.greeted()
    ask(mine, create(1, "/a"), create(2, "/a/e", None, 1), create(3, "/b", None, 1))
    ask(other, create(1, "/c", None, 1))
    found = {}
    for prefix in ("", "/", "/a", "/c"):
        [reply] = ask(mine, encode_looked_at(4, OpCode.GET_EPHEMERALS, prefix))
        found[prefix] = sorted(body_of(reply).strings("ephemerals"))
    assert found == {"": ["/a/e", "/b"], "/": ["/a/e", "/b"], "/a": ["/a/e"], "/c": []}
    null = struct.pack(">iiii", 12, 5, OpCode.GET_EPHEMERALS, -1)
    assert body_of(ask(mine, null)[0]).count("ephemerals", 4) == 2
    [counted] = ask(mine, encode_looked_at(6, OpCode.GET_ALL_CHILDREN_NUMBER, "/a"))
    assert body_of(counted).int32("totalNumber") == 1


def test_each_read_of_a_multi_read_is_answered_on_its_own() -> None:
    node = MemoryNode()
    client = node.greeted()
    ask(client, create(1, "/a"), create(2, "/a/b"), create(3, "/p", PRIVATE))
    reads = [(4, "/a"), (8, "/a"), (4, "/missing"), (8, "/p")]
    [reply] = ask(client, encode_multi_read(4, reads))
    reader = body_of(reply)

    def head() -> tuple[int, bool, int]:
        return reader.int32("type"), reader.boolean("done"), reader.int32("err")

    assert (head(), reader.buffer("data"), reader.stat("stat").children_count) == ((4, False, 0), b"d", 1)
    assert (head(), reader.strings("children")) == ((8, False, 0), ["b"])
    assert (head(), reader.int32("err")) == ((-1, False, NO_NODE), NO_NODE)
    assert (head(), reader.int32("err")) == ((-1, False, NO_AUTH), NO_AUTH)
    assert (head(), reader.remaining) == ((-1, True, -1), 0)


def test_a_multi_read_arms_no_watch_and_takes_nothing_but_two_kinds_of_reads() -> None:
    node = MemoryNode()
    client = node.greeted()
    frame = bytearray(encode_multi_read(1, [(4, "/")]))
    frame[frame.index(b"/") + 1] = 1
    assert errors(ask(client, bytes(frame))) == [0]
    assert node.replica.watches.counts().watches == 0
    assert errors(ask(client, encode_multi_read(2, [(3, "/")]), encode_multi_read(3, []))) == [MARSHALLING, 0]


#: of the answer to a getData besides the data: what it answers, the length of the data, the Stat
READ_OVERHEAD_BYTES = 9 + 4 + 68


def test_a_multi_read_is_bounded_by_the_bytes_that_leave_and_not_by_characters() -> None:
    node = MemoryNode()
    client = node.greeted()
    for number in range(16):
        ask(client, create(2, f"/{number:02d}" + "€" * 2_700))
    [one] = ask(client, encode_multi_read(3, [(8, "/")]))
    size = len(one.body) - 9
    assert size > 16 * 3 * 2_700
    fitting = MULTI_READ_BYTES_MAX // size
    assert errors(ask(client, encode_multi_read(4, [(8, "/")] * fitting))) == [0]
    assert errors(ask(client, encode_multi_read(5, [(8, "/")] * (fitting + 1)))) == [QUOTA]


def test_a_multi_read_takes_a_bounded_number_of_reads() -> None:
    node = MemoryNode(frame_bytes_max=1 << 23)
    client = node.greeted()
    reads = [(4, "/none")] * MULTI_READ_READS_MAX
    assert errors(ask(client, encode_multi_read(3, reads))) == [0]
    assert errors(ask(client, encode_multi_read(4, [*reads, (8, "/")]))) == [QUOTA]
    # Behind the bound nothing is even decoded.
    spoiled = bytearray(encode_multi_read(5, [*reads, (8, "/"), (4, "/spoiled")]))
    spoiled[-22:-18] = b"\x7f" * 4
    assert errors(ask(client, bytes(spoiled), encode_read(6, 4, "/", False))) == [QUOTA, 0]


def test_a_multi_read_whose_answers_are_too_large_is_refused_as_a_whole() -> None:
    node = MemoryNode(frame_bytes_max=2 << 20)
    client = node.greeted()
    size = 1 << 20
    ask(client, encode_command(1, [1, "/a", bytes(size), None, 0]))
    for number in range(200):
        name = f"{number:03d}" + "n" * 8_000
        ask(client, create(2, f"/{name}"))
    fitting = MULTI_READ_BYTES_MAX // (size + READ_OVERHEAD_BYTES)
    [whole] = ask(client, encode_multi_read(3, [(4, "/a")] * fitting))
    assert (whole.err, len(whole.body) // size) == (0, fitting)
    assert errors(ask(client, encode_multi_read(4, [(4, "/a")] * (fitting + 1)))) == [QUOTA]
    assert errors(
        ask(client, encode_multi_read(5, [(8, "/")] * 15), encode_multi_read(6, [(8, "/")] * 40))
    ) == [*(0, QUOTA)]


def test_a_multi_read_lists_a_bounded_number_of_names_unless_it_asks_for_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quorum.server.lookups.MULTI_READ_NAMES_MAX", 20)
    node = MemoryNode()
    client = node.greeted()
    ask(client, create(0, "/d"), *(create(number, f"/d/{number}") for number in range(10)))
    assert errors(ask(client, encode_multi_read(2, [(8, "/d")] * 2 + [(8, "/d/1"), (4, "/d")]))) == [0]
    assert errors(ask(client, encode_multi_read(3, [(8, "/d")] * 3))) == [QUOTA]
    ask(client, *(create(number, f"/d/{number}") for number in range(10, 21)))
    assert errors(ask(client, encode_multi_read(4, [(8, "/d")]))) == [0]
    assert errors(ask(client, encode_multi_read(5, [(8, "/d"), (4, "/d")]))) == [QUOTA]


def test_a_persistent_watch_stays_and_hears_of_the_node_and_its_children() -> None:
    node = MemoryNode()
    writer, watcher = node.greeted(), node.greeted()
    [reply] = ask(watcher, add_watch(1, "/a", 0))
    assert (reply.err, reply.body) == (0, bytes(4))
    writer.send(create(1, "/a"), create(2, "/a/b"), encode_command(3, [5, "/a", b"", -1]))
    writer.send(encode_command(4, [5, "/a/b", b"", -1]), encode_command(5, [2, "/a/b", -1]))
    writer.send(encode_command(6, [2, "/a", -1]))
    assert told(watcher.replies()) == [(1, "/a"), (4, "/a"), (3, "/a"), (4, "/a"), (2, "/a")]


def test_a_recursive_watch_hears_of_everything_below_and_of_no_children() -> None:
    node = MemoryNode()
    writer, watcher = node.greeted(), node.greeted()
    ask(watcher, add_watch(1, "/a", 1), add_watch(2, "/a/b", 1), add_watch(3, "/a/b", 0))
    writer.send(create(1, "/a"), create(2, "/a/b"), create(3, "/a/b/c"), create(4, "/ab"))
    writer.send(encode_command(5, [5, "/a/b/c", b"", -1]), encode_command(6, [2, "/a/b/c", -1]))
    expected = [(1, "/a"), (1, "/a/b"), (1, "/a/b/c"), (4, "/a/b")]
    expected += [(3, "/a/b/c"), (2, "/a/b/c"), (4, "/a/b")]
    assert told(watcher.replies()) == expected


def test_an_unknown_mode_or_kind_is_a_marshalling_error() -> None:
    client = MemoryNode().greeted()
    frames = [add_watch(1, "/a", 2), add_watch(2, "/a", -1), check(3, "/a", 0), remove(4, "/a", 6)]
    assert errors(ask(client, *frames)) == [MARSHALLING] * 4
    assert not client.has_ended()


def test_removing_one_kind_leaves_the_others_armed() -> None:
    node = MemoryNode()
    writer, watcher = node.greeted(), node.greeted()
    ask(writer, create(1, "/a"))
    watcher.send(watch(OpCode.GET_DATA, "/a"), watch(OpCode.GET_CHILDREN, "/a"), add_watch(1, "/a", 0))
    watcher.send(add_watch(2, "/a", 1))
    watcher.received()
    assert errors(ask(watcher, *(check(9, "/a", kind) for kind in (1, 2, 3, 4, 5)))) == [0] * 5
    assert errors(ask(watcher, remove(3, "/a", 4), remove(4, "/a", 4), check(5, "/a", 3))) == [
        0,
        NO_WATCHER,
        0,
    ]
    assert errors(ask(watcher, remove(3, "/a", 2), check(5, "/a", 2), check(5, "/a", 1))) == [
        0,
        NO_WATCHER,
        0,
    ]
    writer.send(encode_command(6, [5, "/a", b"", -1]), create(7, "/a/b"))
    assert told(watcher.replies()) == [(3, "/a"), (1, "/a/b"), (4, "/a")], "recursive and child watch"
    assert errors(ask(watcher, remove(8, "/a", 3), remove(9, "/a", 3))) == [0, NO_WATCHER]
    writer.send(encode_command(10, [5, "/a", b"", -1]), create(11, "/a/c"), create(12, "/a/c/d"))
    assert watcher.replies() == []
    assert node.replica.watches.counts() == (0, 0, 0)


def test_watches_of_another_connection_cannot_be_seen_or_removed() -> None:
    node = MemoryNode()
    watcher, other = node.greeted(), node.greeted()
    ask(watcher, add_watch(1, "/a", 0))
    assert errors(ask(other, check(1, "/a", 3), remove(2, "/a", 3))) == [NO_WATCHER, NO_WATCHER]


def test_a_watch_beyond_the_limit_is_refused_and_a_gone_client_leaves_none() -> None:
    node = MemoryNode(watches_per_connection_max=3)
    client = node.greeted()
    frames = [add_watch(1, "/a", 0), add_watch(2, "/b", 0), add_watch(3, "/b", 1), add_watch(4, "/c", 1)]
    assert errors(ask(client, *frames)) == [0, QUOTA, 0, QUOTA]
    returning = node.greeted()
    assert told(ask(returning, encode_set_watches2(SetWatches(0, [], [], [], ["/a"], ["/b"])))) == [-8]
    greedy = node.greeted()
    assert ask(greedy, encode_set_watches2(SetWatches(0, [], [], [], ["/a", "/b"], []))) == []
    assert greedy.has_ended(), "a persistent watch counts as two, however it was left"
    returning.vanish()
    greedy.vanish()
    client.vanish()
    assert node.replica.watches.counts() == (0, 0, 0)
    assert node.replica.watches.trigger(1, "/b/x") == []


def test_set_watches2_arms_persistent_watches_whatever_was_missed() -> None:
    node = MemoryNode()
    writer, watcher = node.greeted(), node.greeted()
    ask(writer, create(1, "/a"))
    request = SetWatches(0, ["/a", "/gone"], ["/a", "/none"], ["/a"], ["/a"], ["/r"])
    missed = ask(watcher, encode_set_watches2(request))
    assert told(missed) == [(3, "/a"), (2, "/gone"), (1, "/a"), (4, "/a"), -8]
    writer.send(encode_command(2, [5, "/a", b"", -1]), create(3, "/r"), create(4, "/r/x"), create(5, "/none"))
    assert told(watcher.replies()) == [(3, "/a"), (1, "/r"), (1, "/r/x"), (1, "/none")]


def test_who_may_not_read_a_node_hears_nothing_and_the_watch_is_used_up() -> None:
    node = MemoryNode()
    owner, other, reader = bob(node), node.greeted(), bob(node)
    ask(owner, create(1, "/a"))
    for client in (other, reader):
        ask(client, watch(OpCode.EXISTS, "/a/b"), watch(OpCode.GET_CHILDREN, "/a"), add_watch(2, "/a", 1))
    owner.send(create(2, "/a/b", PRIVATE))
    assert told(other.replies()) == [(4, "/a")], "the parent may be read"
    assert told(reader.replies()) == [(1, "/a/b"), (4, "/a")]
    owner.send(encode_command(3, [7, "/a/b", None, -1]), encode_command(4, [5, "/a/b", b"", -1]))
    assert told(other.replies()) == [(3, "/a/b")], "the recursive watch is still there, and may be told now"
    assert errors(ask(other, check(5, "/a/b", 2))) == [NO_WATCHER]


def test_the_acl_that_counts_is_that_of_the_event_not_of_later() -> None:
    node = MemoryNode()
    owner, other = bob(node), node.greeted()
    ask(other, add_watch(1, "/", 1))
    owner.send(create(1, "/p", PRIVATE), encode_command(2, [2, "/p", -1]), create(3, "/p"))
    assert told(other.replies()) == [(1, "/p")]


@pytest.mark.parametrize("op", [OpCode.GET_ACL, OpCode.ADD_WATCH, OpCode.SET_WATCHES2, OpCode.MULTI_READ])
def test_a_body_that_cannot_be_decoded_is_refused(op: int) -> None:
    client = MemoryNode().greeted()
    client.send(struct.pack(">iii", 9, 1, op) + b"\x01")
    assert [(reply.xid, reply.err, reply.body) for reply in client.replies()] == [(1, -5, b"")]
    assert not client.has_ended()


def test_lookups_wait_for_the_writes_before_them() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    client.send(create(1, "/a"), encode_looked_at(2, OpCode.GET_ACL, "/a"), add_watch(3, "/a", 0))
    assert client.replies() == []
    node.replica.release()
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(1, 0), (2, 0), (3, 0)]


def test_lookups_that_take_long_let_others_run_in_between() -> None:
    node = MemoryNode()
    client = node.greeted()
    ask(client, create(1, "/a"))

    def slow_clock() -> float:
        node.time_ms += 2.0
        return node.time_ms

    node.frontend.now_ms = slow_clock
    xids = range(2, 42)
    client.send(*(encode_looked_at(xid, OpCode.GET_ALL_CHILDREN_NUMBER, "/a") for xid in xids), turn=False)
    assert 0 < len(client.replies()) < 10
    assert client.is_paused()
    node.turn()
    assert [reply.xid for reply in client.replies()][-1] == 41
    assert not client.is_paused()
