"""Incremental fetch sessions beside full fetches, and their bounds."""

import itertools
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core import fetch_sessions
from broker.core.fetch_sessions import (
    UNUSED_MAX_MS,
    FetchSession,
    FetchSessions,
)
from broker.core.fetched import FetchOutcome, FetchPosition
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey

CONSUMER = (-1, -1)
FOLLOWER = (2, 77)
KEYS = [PartitionKey("t", number) for number in range(4)]


class World:
    """Sessions, and what they do beside themselves."""

    def __init__(self, slots: int = 3) -> None:
        self.kept_up: list[PartitionKey] = []
        self.left: list[PartitionKey] = []
        self.sessions: FetchSessions = FetchSessions(
            slots, itertools.count(1), on_due=self._on_due, on_end=self._on_end
        )

    def _on_due(self, _: FetchSession, key: PartitionKey) -> None:
        self.kept_up.append(key)

    def _on_end(self, _: FetchSession, keys: Collection[PartitionKey]) -> None:
        self.left.extend(keys)

    def begin(self, owner: tuple[int, int] = CONSUMER, now_ms: int = 0, size: int = 1) -> int:
        """Return the id of a new session; 0: none was given."""
        session = self.sessions.begin(owner, now_ms, size=size, by_id=True)
        if session is None:
            return 0
        session.name({PartitionKey(str(number), 0): FetchPosition(0, 1) for number in range(size)})
        return session.session_id

    def has(self, session_id: int, now_ms: int = 0, owner: tuple[int, int] = CONSUMER) -> bool:
        found = self.sessions.take(session_id, 9, owner, now_ms, by_id=True)
        return found is ErrorCode.INVALID_FETCH_SESSION_EPOCH


class Partition:
    """A log of a naive leader: one byte a record."""

    def __init__(self) -> None:
        self.end = self.high_watermark = self.start = 0
        self.error = ErrorCode.NONE

    def happen(self, what: str) -> None:
        match what:
            case "append":
                self.end += 1
            case "commit":
                self.high_watermark = self.end
            case "delete":
                self.start = self.high_watermark
            case "fail":
                self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            case "heal":
                self.error = ErrorCode.NONE

    def read(self, offset: int, room: int) -> FetchOutcome:
        if self.error is not ErrorCode.NONE:
            return FetchOutcome(self.error, -1, -1)
        return FetchOutcome(
            ErrorCode.NONE, self.high_watermark, self.start, bytes(min(self.end - offset, room))
        )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "commit", "delete", "fail", "heal", "fetch", "forget", "lose")),
        st.sampled_from(KEYS),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 3))
def test_incremental_fetches_teach_what_full_ones_do(
    steps: list[tuple[str, PartitionKey]], room: int
) -> None:
    world = World()
    logs = {key: Partition() for key in KEYS}
    session: FetchSession | None = None
    #: What the reader knows: its end, the high watermark, the log start, whether there is an error.
    known = {key: [0, -1, -1, True] for key in KEYS}
    asked: dict[PartitionKey, int] = {}

    def fetch() -> None:
        nonlocal session
        is_full = session is None
        if session is None:
            asked.clear()
            session = world.sessions.begin(FOLLOWER, 0, size=len(KEYS), by_id=True)
            assert session is not None
        named = {
            key: FetchPosition(state[0], 1) for key, state in known.items() if asked.get(key) != state[0]
        }
        session.name(named)
        asked.update((key, position.offset) for key, position in named.items())
        outcomes = {}
        for key, position in session.positions().items():
            found = outcomes[key] = logs[key].read(position.offset, room)
            session.looked(key, found, is_settled=position.offset >= logs[key].end)
        for key, each in session.answer(outcomes, is_full=is_full).items():
            has_failed = each.error_code is not ErrorCode.NONE
            marks = (-1, -1) if has_failed else (each.high_watermark, each.log_start_offset)
            known[key] = [known[key][0] + len(each.records), *marks, has_failed]

    for what, key in [*steps, *[("fetch", KEYS[0])] * (len(steps) + 1)]:
        log = logs[key]
        match what:
            case "forget" if session is not None:
                world.sessions.forget(session, [key])
                asked.pop(key, None)
            case "lose":
                session = None
            case "fetch":
                fetch()
            case _:
                log.happen(what)
        if session is not None and what != "fetch":
            session.mark(key)
    for key, log in logs.items():
        expected = log.read(known[key][0], room)
        assert known[key][1:3] == [expected.high_watermark, expected.log_start_offset]
        assert known[key][3] == (expected.error_code is not ErrorCode.NONE)
        assert known[key][3] or known[key][0] == log.end


def test_a_settled_partition_is_read_once_it_changes() -> None:
    world = World()
    session = world.sessions.begin(FOLLOWER, 0, size=2, by_id=True)
    assert session is not None
    session.name({key: FetchPosition(0, 1) for key in KEYS[:2]})
    for key in KEYS[:2]:
        session.looked(key, FetchOutcome(ErrorCode.NONE), is_settled=True)
    assert (session.positions(), world.kept_up) == ({}, [])
    session.mark(KEYS[1])
    session.mark(KEYS[1])
    session.mark(KEYS[3])
    assert (session.positions(), world.kept_up) == ({KEYS[1]: FetchPosition(0, 1)}, [KEYS[1]])


def test_a_busy_partition_is_read_last() -> None:
    session = FetchSession(1, FOLLOWER, 0, by_id=True, on_due=lambda *_: None)
    session.name({key: FetchPosition(0, 1) for key in KEYS[:3]})
    for key, records in zip(KEYS, (b"records", b"", b"records"), strict=False):
        session.looked(key, FetchOutcome(ErrorCode.NONE, records=records), is_settled=False)
    assert list(session.positions()) == [KEYS[1], KEYS[0], KEYS[2]]


def test_a_session_that_ends_during_a_read_holds_nothing() -> None:
    world = World()
    session = world.sessions.begin(CONSUMER, 0, size=1, by_id=True)
    assert session is not None
    session.name({KEYS[0]: FetchPosition(0, 1)})
    world.sessions.end(session)
    session.looked(KEYS[0], FetchOutcome(ErrorCode.NONE, records=b"records"), is_settled=False)
    assert (len(session), session.positions(), world.left) == (0, {}, [KEYS[0]])


def test_an_unused_session_goes_after_two_minutes() -> None:
    world = World()
    first = world.begin()
    assert world.has(first, UNUSED_MAX_MS)
    assert not world.has(first, UNUSED_MAX_MS + 1)
    assert (world.sessions.evictions, world.left) == (1, [PartitionKey("0", 0)])


def test_a_young_session_keeps_its_slot_from_clients() -> None:
    world = World(1)
    first = world.begin()
    assert world.begin(size=9) == 0
    assert world.has(first)


def test_a_larger_session_takes_the_slot_of_an_old_one() -> None:
    world = World(1)
    first, now_ms = world.begin(size=5), UNUSED_MAX_MS + 1
    session = world.sessions.take(first, 1, CONSUMER, UNUSED_MAX_MS, by_id=True)
    assert isinstance(session, FetchSession)
    assert world.begin(now_ms=now_ms, size=4) == 0
    assert world.begin(now_ms=now_ms, size=6) != 0
    assert not world.has(first, now_ms)


def test_a_follower_takes_the_slot_of_a_client() -> None:
    world = World(1)
    first = world.begin(size=9)
    second = world.begin(FOLLOWER)
    assert world.has(second, owner=FOLLOWER)
    assert not world.has(first)
    assert world.begin(size=99) == 0


def test_a_follower_has_one_session() -> None:
    world = World()
    first = world.begin(FOLLOWER)
    second = world.begin((FOLLOWER[0], FOLLOWER[1] + 1))
    assert (second, len(world.sessions)) == (first + 1, 1)


def test_nobody_else_uses_or_ends_a_session() -> None:
    world = World()
    first = world.begin(FOLLOWER)
    for other in (CONSUMER, (3, 77), (2, 78)):
        assert not world.has(first, owner=other)
    world.sessions.end_of(first, CONSUMER)
    assert world.has(first, owner=FOLLOWER)


def test_the_partitions_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "CLIENT_PARTITIONS_MAX", 2000)
    world = World()
    assert world.begin(size=1000) != 0
    second = world.sessions.begin(CONSUMER, 0, size=1, by_id=True)
    assert second is not None
    second.name({PartitionKey("more", number): FetchPosition(0, 1) for number in range(1000)})
    assert world.sessions.has_room(second)
    assert world.begin() == 0
    second.name({KEYS[0]: FetchPosition(0, 1)})
    assert not world.sessions.has_room(second)
    assert world.begin(FOLLOWER) != 0
