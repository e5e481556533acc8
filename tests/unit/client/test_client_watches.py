"""Watches on the client's side: who is told, once, in order; what is armed again; streams that never skip."""

from __future__ import annotations

import asyncio

import pytest

from quorum.client import EventType, WatchEvent, WatchOverflowError, WatchStream
from quorum.client.watches import WatchCause, WatchRegistry, WatchType


class Recorder:
    """A callback that keeps what it was told."""

    def __init__(self, name: str, log: list[tuple[str, WatchEvent]]) -> None:
        self._name = name
        self._log = log

    def __call__(self, event: WatchEvent) -> None:
        self._log.append((self._name, event))


def event(event_type: EventType, path: str = "/a", zxid: int = 5) -> WatchEvent:
    return WatchEvent(event_type, path, zxid)


async def one_turn() -> None:
    """Let everything run that is ready now."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


FIRES = {
    EventType.NODE_CREATED: {WatchCause.DATA, WatchCause.EXIST},
    EventType.NODE_DATA_CHANGED: {WatchCause.DATA, WatchCause.EXIST},
    EventType.NODE_DELETED: set(WatchCause),
    EventType.NODE_CHILDREN_CHANGED: {WatchCause.CHILD},
}


@pytest.mark.parametrize("event_type", FIRES)
@pytest.mark.parametrize("kind", [WatchCause.DATA, WatchCause.EXIST, WatchCause.CHILD])
def test_an_event_fires_the_kinds_that_it_concerns_once(event_type: EventType, kind: WatchCause) -> None:
    registry = WatchRegistry()
    log: list[tuple[str, WatchEvent]] = []
    callback = Recorder("w", log)
    registry.arm(kind, "/a", callback)
    assert registry.fire(event(event_type, "/other")) == []
    fires = kind in FIRES[event_type]
    assert registry.fire(event(event_type)) == ([callback] if fires else [])
    assert registry.fire(event(event_type)) == []
    assert len(registry) == (0 if fires else 1)


def test_a_callback_on_several_kinds_is_told_once_of_a_deletion() -> None:
    registry = WatchRegistry()
    first, second = Recorder("1", []), Recorder("2", [])
    for kind in WatchCause:
        registry.arm(kind, "/a", first)
    registry.arm(WatchCause.CHILD, "/a", second)
    registry.arm(WatchCause.CHILD, "/a", second)
    assert registry.fire(event(EventType.NODE_DELETED)) == [first, second]


def test_persistent_watches_fire_again_and_again_recursive_ones_from_their_path_down() -> None:
    registry = WatchRegistry()
    node, below, everything = Recorder("n", []), Recorder("b", []), Recorder("e", [])
    registry.arm(WatchCause.PERSISTENT, "/a", node)
    registry.arm(WatchCause.RECURSIVE, "/a", below)
    registry.arm(WatchCause.RECURSIVE, "/", everything)
    for _ in range(2):
        for event_type in (EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED):
            assert registry.fire(event(event_type, "/a")) == [node, below, everything]
            assert registry.fire(event(event_type, "/a/b/c")) == [below, everything]
            assert registry.fire(event(event_type, "/ab")) == [everything]
            assert registry.fire(event(event_type, "/")) == [everything]
        assert registry.fire(event(EventType.NODE_CHILDREN_CHANGED, "/a")) == [node]
        assert registry.fire(event(EventType.NODE_CHILDREN_CHANGED, "/")) == []
    assert registry.fire(event(EventType.NONE, "/a")) == []
    assert len(registry) == 3


@pytest.mark.parametrize(
    ("watch_type", "told", "left"),
    [
        (WatchType.CHILDREN, ["CHILD"], 4),
        (WatchType.DATA, ["DATA"], 3),
        (WatchType.PERSISTENT, ["PERSISTENT"], 4),
        (WatchType.RECURSIVE, ["PERSISTENT"], 4),
        (WatchType.ANY, ["DATA", "CHILD", "PERSISTENT"], 0),
    ],
)
def test_what_is_removed_is_told_once_and_disarmed(watch_type: WatchType, told: list[str], left: int) -> None:
    registry = WatchRegistry()
    callback = Recorder("w", [])
    for kind in WatchCause:
        registry.arm(kind, "/a", callback)
    assert list(registry.remove("/b", watch_type)) == []
    assert list(registry.remove("/a", watch_type)) == [
        (callback, WatchEvent(EventType[f"{name}_WATCH_REMOVED"], "/a", -1)) for name in told
    ]
    assert len(registry) == left


def test_losing_the_session_tells_everybody_once_per_path() -> None:
    registry = WatchRegistry()
    log: list[tuple[str, WatchEvent]] = []
    callback = Recorder("w", log)
    registry.arm(WatchCause.DATA, "/a", callback)
    registry.arm(WatchCause.CHILD, "/a", callback)
    registry.arm(WatchCause.CHILD, "/b", callback)
    told = list(registry.lose_all())
    assert told == [
        (callback, WatchEvent(EventType.NONE, "/a", -1)),
        (callback, WatchEvent(EventType.NONE, "/b", -1)),
    ]
    assert len(registry) == 0
    assert list(registry.lose_all()) == []


def test_rearming_splits_by_bytes_and_names_every_path_in_its_kind() -> None:
    registry = WatchRegistry()
    paths = {kind: [f"/{kind.value}/ü{number:04}" for number in range(50)] for kind in WatchCause}
    for kind, names in paths.items():
        for path in names:
            registry.arm(kind, path, Recorder("w", []))
    parts = list(registry.rearm_requests(bytes_max=300))
    assert len(parts) > 5
    for part in parts:
        assert sum(4 + len(path.encode()) for names in part for path in names) <= 300
    assert [path for part in parts for path in part.data] == paths[WatchCause.DATA]
    assert [path for part in parts for path in part.exist] == paths[WatchCause.EXIST]
    assert [path for part in parts for path in part.child] == paths[WatchCause.CHILD]
    assert [path for part in parts for path in part.persistent] == paths[WatchCause.PERSISTENT]
    assert [path for part in parts for path in part.recursive] == paths[WatchCause.RECURSIVE]
    assert len(registry) == 250


def test_nothing_armed_needs_no_request_and_a_huge_path_gets_its_own() -> None:
    registry = WatchRegistry()
    assert list(registry.rearm_requests()) == []
    for path in ("/a", "/" + "x" * 100, "/b"):
        registry.arm(WatchCause.DATA, path, Recorder("w", []))
    assert [len(part.data) for part in registry.rearm_requests(bytes_max=50)] == [1, 1, 1]


async def test_a_stream_yields_in_order_and_ends_after_close() -> None:
    stream = WatchStream()
    first, second = event(EventType.NODE_CREATED, zxid=1), event(EventType.NODE_DELETED, zxid=2)
    waiting = asyncio.ensure_future(anext(stream))
    await one_turn()
    stream(first)
    stream(second)
    assert await waiting == first
    stream.close()
    stream(event(EventType.NODE_CREATED, zxid=3))
    assert [found async for found in stream] == [second]


async def test_a_stream_that_nobody_reads_fails_instead_of_skipping() -> None:
    stream = WatchStream(events_max=2)
    for zxid in range(4):
        stream(event(EventType.NODE_CREATED, zxid=zxid))
    assert [(await anext(stream)).zxid, (await anext(stream)).zxid] == [0, 1]
    with pytest.raises(WatchOverflowError, match="2"):
        await anext(stream)
    stream(event(EventType.NODE_CREATED, zxid=9))
    with pytest.raises(WatchOverflowError):
        await anext(stream)


async def test_two_readers_of_one_stream_are_refused() -> None:
    stream = WatchStream()
    waiting = asyncio.ensure_future(anext(stream))
    await one_turn()
    with pytest.raises(RuntimeError, match="two tasks"):
        await anext(stream)
    stream(event(EventType.NODE_CREATED))
    assert (await waiting).path == "/a"


async def test_a_cancelled_reader_leaves_the_stream_usable() -> None:
    stream = WatchStream()
    waiting = asyncio.ensure_future(anext(stream))
    await one_turn()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    stream(event(EventType.NODE_CREATED))
    assert (await anext(stream)).path == "/a"
