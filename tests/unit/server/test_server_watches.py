"""Watches at the client port: who hears of what, and in which order."""

from __future__ import annotations

from quorum.wire.requests import SetWatches, encode_command, encode_read, encode_set_watches
from tests.unit.server.memory import MemoryClient, MemoryNode, Reply

EXISTS, GET_DATA, GET_CHILDREN, GET_CHILDREN2 = 3, 4, 8, 12


def create(xid: int, path: str, flags: int = 0) -> bytes:
    return encode_command(xid, [1, path, b"", None, flags])


def set_data(xid: int, path: str) -> bytes:
    return encode_command(xid, [5, path, b"new", -1])


def delete(xid: int, path: str) -> bytes:
    return encode_command(xid, [2, path, -1])


def watch(op: int, path: str, xid: int = 100) -> bytes:
    return encode_read(xid, op, path, True)


def armed(node: MemoryNode, *watches: bytes) -> MemoryClient:
    client = node.greeted()
    client.send(*watches)
    client.received()
    return client


def told(replies: list[Reply]) -> list[object]:
    """Events as (type, path), replies as their xid."""
    return [reply.event if reply.xid == -1 else reply.xid for reply in replies]


def test_each_kind_of_change_fires_once_with_the_zxid_of_its_transaction() -> None:
    node = MemoryNode()
    writer = node.greeted()
    writer.send(create(1, "/a"))
    watcher = armed(node, watch(GET_DATA, "/a"), watch(GET_CHILDREN, "/a"), watch(EXISTS, "/none"))
    writer.send(set_data(2, "/a"), set_data(3, "/a"), create(4, "/a/b"), create(5, "/none"))
    replies = watcher.replies()
    assert told(replies) == [(3, "/a"), (4, "/a"), (1, "/none")]
    zxids = {reply.xid: reply.zxid for reply in writer.replies()}
    assert [reply.zxid for reply in replies] == [zxids[2], zxids[4], zxids[5]]
    assert {reply.err for reply in replies} == {0}


def test_a_deletion_reaches_data_and_child_watchers_of_the_node_once_and_watchers_of_the_parent() -> None:
    node = MemoryNode()
    writer = node.greeted()
    writer.send(create(1, "/a"))
    watcher = armed(node, watch(EXISTS, "/a"), watch(GET_CHILDREN2, "/a"), watch(GET_CHILDREN, "/"))
    writer.send(delete(2, "/a"))
    assert told(watcher.replies()) == [(2, "/a"), (4, "/")]


def test_only_exists_leaves_a_watch_on_a_missing_node() -> None:
    node = MemoryNode()
    watcher = armed(node, watch(GET_DATA, "/d"), watch(GET_CHILDREN, "/c"), watch(EXISTS, "/e"))
    assert node.replica.watches.counts().watches == 1
    node.greeted().send(create(1, "/d"), create(2, "/c"), create(3, "/e"))
    assert told(watcher.replies()) == [(1, "/e")]


def test_the_writer_gets_the_event_before_its_own_reply() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(1, "/a"), watch(GET_DATA, "/a", 2), set_data(3, "/a"), watch(GET_DATA, "/a", 4))
    assert told(client.replies()) == [1, 2, (3, "/a"), 3, 4]


def test_an_event_comes_before_any_reply_that_could_show_the_change() -> None:
    node = MemoryNode()
    writer = node.greeted()
    writer.send(create(1, "/a"), create(2, "/b"))
    watcher = armed(node, watch(GET_DATA, "/a"))
    node.replica.holding = True
    watcher.send(set_data(1, "/b"), encode_read(2, GET_DATA, "/a", False))
    writer.send(set_data(3, "/a"))
    node.replica.release()
    assert told(watcher.replies()) == [1, 2, (3, "/a")]
    writer.send(set_data(4, "/a"))
    watcher.send(watch(GET_DATA, "/a", 3), turn=False)
    writer.send(set_data(5, "/a"))
    watcher.send(encode_read(4, GET_DATA, "/a", False))
    assert told(watcher.replies()) == [3, (3, "/a"), 4]


def test_changes_of_other_nodes_fire_too() -> None:
    node = MemoryNode()
    watcher = armed(node, watch(GET_CHILDREN, "/"))
    [outcome] = node.replica.apply_elsewhere([[0, 9, None, [[-10, 6000]]]])
    session_id = outcome.results[0].value[0]
    node.replica.apply_elsewhere([[session_id, 9, None, [[1, "/x", b"", None, 1]]]])
    assert told(watcher.replies()) == [(4, "/")]
    watcher.send(watch(EXISTS, "/x"))
    watcher.received()
    node.replica.expire(session_id)
    assert told(watcher.replies()) == [(2, "/x")]


def test_a_multi_fires_in_the_order_of_its_operations_under_one_zxid_and_a_failed_one_not_at_all() -> None:
    node = MemoryNode()
    watcher = armed(node, watch(EXISTS, "/b"), watch(EXISTS, "/a"))
    writer = node.greeted()
    writer.send(encode_command(1, [14, [[1, "/b", b"", None, 0], [13, "/none", -1]]]))
    assert watcher.replies() == []
    writer.send(encode_command(2, [14, [[1, "/b", b"", None, 0], [1, "/a", b"", None, 0]]]))
    replies = watcher.replies()
    assert told(replies) == [(1, "/b"), (1, "/a")]
    assert {reply.zxid for reply in replies} == {writer.replies()[-1].zxid}


def test_all_ephemerals_of_a_closed_session_vanish_under_one_zxid() -> None:
    node = MemoryNode()
    owner = node.greeted()
    owner.send(create(1, "/e1", 1), create(2, "/e2", 1))
    watcher = armed(node, watch(EXISTS, "/e1"), watch(EXISTS, "/e2"))
    owner.send(encode_command(3, [-11]))
    replies = watcher.replies()
    assert sorted(reply.event for reply in replies) == [(2, "/e1"), (2, "/e2")]
    assert {reply.zxid for reply in replies} == {owner.replies()[-1].zxid}


def test_watches_vanish_with_their_connection() -> None:
    node = MemoryNode()
    watcher = armed(node, watch(GET_CHILDREN, "/"), watch(EXISTS, "/a"))
    watcher.vanish()
    assert node.replica.watches.counts() == (0, 0, 0)
    node.greeted().send(create(1, "/a"))
    assert watcher.received() == b""


def test_set_watches_tells_what_was_missed_before_its_reply_and_arms_the_rest() -> None:
    node = MemoryNode()
    writer = node.greeted()
    writer.send(create(1, "/old"), create(2, "/changed"))
    seen = writer.replies()[-1].zxid
    writer.send(set_data(3, "/changed"), create(4, "/made"), create(5, "/old/child"))
    client = node.greeted()
    client.send(
        encode_set_watches(
            SetWatches(seen, ["/old", "/changed", "/gone"], ["/made", "/missing"], ["/old", "/lost"])
        )
    )
    replies = client.replies()
    assert told(replies) == [(3, "/changed"), (2, "/gone"), (1, "/made"), (4, "/old"), (2, "/lost"), -8]
    assert {reply.zxid for reply in replies[:-1]} == {-1}
    writer.send(set_data(6, "/old"), create(7, "/missing"), delete(8, "/changed"))
    assert told(client.replies()) == [(3, "/old"), (1, "/missing")]


def test_set_watches_behind_a_write_waits_for_it() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(1, "/a"), encode_set_watches(SetWatches(0, [], ["/a"], [])))
    assert told(client.replies()) == [1, (1, "/a"), -8]


def test_a_watch_beyond_the_limit_is_refused_by_its_own_reply() -> None:
    node = MemoryNode(watches_per_connection_max=2)
    client = node.greeted()
    client.send(
        watch(EXISTS, "/a", 1),
        watch(GET_CHILDREN, "/", 2),
        watch(EXISTS, "/b", 3),
        encode_read(4, 4, "/", False),
    )
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(1, -101), (2, 0), (3, -125), (4, 0)]
    assert node.replica.watches.counts().watches == 2
    assert node.frontend.counters.watches_refused == 1


def test_set_watches_beyond_the_limit_ends_the_connection_rather_than_losing_some() -> None:
    node = MemoryNode(watches_per_connection_max=2)
    client = node.greeted()
    client.send(encode_set_watches(SetWatches(99, ["/a"], ["/b"], ["/c"])))
    assert client.has_ended()
    assert client.replies() == []
    client.vanish()
    assert node.replica.watches.counts().watches == 0


def test_no_write_behind_a_refused_set_watches_is_answered() -> None:
    node = MemoryNode(watches_per_connection_max=2)
    client = node.greeted()
    node.replica.holding = True
    too_many = encode_set_watches(SetWatches(99, ["/a"], ["/b"], ["/c"]))
    client.send(create(1, "/a"), too_many, create(2, "/b"))
    node.replica.release()
    node.turn()
    assert [reply.xid for reply in client.replies()] == [1], "the answer to a request before it is missing"
    assert client.has_ended()
    assert node.replica.machine.tree.get("/b") is None, "a long request holds the next write up"
