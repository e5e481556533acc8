"""What is looked up of topics when members name them, and how often."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from broker.core.cluster_view import ClusterView
from broker.groups import topics as topics_module
from broker.groups.topics import GroupTopics
from quorum.client import NoNodeError
from quorum.metadata import paths
from quorum.metadata.records import TopicRecord


class Quorum:
    """Answers with topics; counts what is read."""

    def __init__(self, *names: str) -> None:
        self.topics = {paths.topic_path(name): TopicRecord(uuid.uuid4(), {0: (1,)}) for name in names}
        self.lists = 0
        self.read: list[str] = []

    async def get_children(self, path: str) -> list[str]:
        assert path == paths.BROKER_TOPICS
        self.lists += 1
        return [each.rpartition("/")[2] for each in self.topics]

    async def read_all(self, wanted: Sequence[str]) -> list[Any]:
        self.read += [each.rpartition("/")[2] for each in wanted]
        found = [self.topics.get(each) for each in wanted]
        return [NoNodeError(-101, "") if each is None else (each.encode(), None) for each in found]


class Desk:
    """Topics of groups over such a quorum."""

    def __init__(self, *names: str) -> None:
        self.quorum = Quorum(*names)
        self.view = ClusterView()
        client: Any = self.quorum
        self.topics = GroupTopics(client, self.view)

    async def bring(self, *names: str, pattern: str | None = None) -> list[str]:
        """A member names topics; returns those whose records were read for that."""
        self.quorum.read.clear()
        if self.topics.lacks(names, pattern):
            await self.topics.look_up(names, pattern)
        assert not self.topics.lacks(names, pattern)
        return self.quorum.read


async def test_a_name_is_looked_up_once_and_alone() -> None:
    desk = Desk("a", "b", "c")
    await desk.topics.read({"a"}, ())
    assert set(desk.topics.catalog.topics) == {"a"}
    assert await desk.bring("a", "b") == ["b"]
    assert await desk.bring("b", "a") == []
    assert await desk.bring("c") == ["c"]
    assert set(desk.topics.catalog.topics) == {"a", "b", "c"}


async def test_names_of_no_topic_cost_nothing_however_many_come() -> None:
    desk = Desk("a")
    await desk.topics.read((), ())
    lists = desk.quorum.lists
    for number in range(100):
        assert await desk.bring(*(f"{number}-{each}" for each in range(2_000))) == []
    assert desk.quorum.lists == lists
    assert desk.topics.catalog.topics == {}
    # What exists may have changed: it is listed once more, not with each heartbeat.
    desk.view.changes += 1
    for _ in range(3):
        await desk.bring("none")
    assert desk.quorum.lists == lists + 1


async def test_a_topic_that_is_new_is_found_once_it_may_be_there() -> None:
    desk = Desk("a")
    await desk.topics.read((), ())
    await desk.bring("later")
    desk.quorum.topics[paths.topic_path("later")] = TopicRecord(uuid.uuid4(), {0: (1,)})
    desk.view.changes += 1
    assert await desk.bring("later") == ["later"]
    assert set(desk.topics.catalog.topics) == {"later"}


async def test_a_record_that_is_malformed_is_read_once() -> None:
    desk = Desk("bad")
    desk.quorum.topics[paths.topic_path("bad")] = TopicRecord(None, {0: (1,)})
    await desk.topics.read((), ())
    assert await desk.bring("bad") == ["bad"]
    assert await desk.bring("bad") == []


async def test_what_a_member_brought_outlives_the_next_reading_of_all() -> None:
    desk = Desk("a", "b")
    await desk.topics.read((), ())
    await desk.bring("a")
    # It has not joined yet when all is read.
    await desk.topics.read((), ())
    assert set(desk.topics.catalog.topics) == {"a"}
    await desk.topics.read({"b"}, ())
    assert set(desk.topics.catalog.topics) == {"b"}


async def test_patterns_read_what_they_match_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "PATTERNS_MAX", 3)
    desk = Desk("a1", "a2", "b1")
    await desk.topics.read((), ())
    assert sorted(await desk.bring(pattern="a.*")) == ["a1", "a2"]
    assert await desk.bring(pattern=".*") == ["b1"]
    assert await desk.bring(pattern=".*") == []
    assert not desk.topics.are_due(0)
    for number in range(3):
        await desk.bring(pattern=f"a{number}")
    # All is read again: patterns to which nobody subscribes go.
    assert desk.topics.are_due(10_000)
    await desk.topics.read((), {"a.*"})
    await desk.topics.read((), {"a.*"})
    assert desk.topics.catalog.matched == {"a.*": ("a1", "a2")}


async def test_a_deletion_that_takes_long_is_noticed() -> None:
    # The brokers know no such topic any more; the quorum has it yet.
    desk = Desk("a")
    await desk.topics.read({"a"}, ())
    for now_ms in (5_000, 10_000):
        assert desk.topics.are_due(now_ms)
        assert not desk.topics.are_due(now_ms)
        await desk.topics.read({"a"}, ())
        assert set(desk.topics.catalog.topics) == {"a"}
    desk.quorum.topics.clear()
    assert desk.topics.are_due(15_000)
    await desk.topics.read({"a"}, ())
    assert desk.topics.catalog.topics == {}
    assert not desk.topics.are_due(20_000)
