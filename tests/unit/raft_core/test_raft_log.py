"""The log, its term runs and its memory tail, against a naive model; configurations, options and progress."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial

import pytest

from quorum.raft.core.configuration import (
    Configuration,
    Member,
    configuration_from_plain,
    founding_configuration,
    majority_value,
    parse_configuration,
    quorum_size,
)
from quorum.raft.core.entry import Entry, EntryKind, size_bytes
from quorum.raft.core.errors import ConfigurationError, InvariantError, TransitionError
from quorum.raft.core.history import ConfigurationHistory
from quorum.raft.core.log import Log
from quorum.raft.core.messages import DurableLog, SnapshotMark
from quorum.raft.core.options import Options
from quorum.raft.core.progress import FLOW_MOVES, Flow, Progress
from quorum.raft.core.terms import TermRuns
from quorum.raft.core.transfers import Outgoing
from tests.unit.raft_core.disk import CLUSTER_ID, SESSION_KEY, Disk, found, incarnation_of

CONFIGURATION = Configuration(
    CLUSTER_ID,
    {1: Member("h:1", incarnation_of(1)), 2: Member("h:2", incarnation_of(2))},
    {3: Member("h:3", "")},
    (incarnation_of(9),),
)


class Model:
    """What a log is, kept in the plainest way."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []  #: the whole log, from 1
        self.first_index = 1
        self.durable = 0
        self.under_way: list[tuple[int, int]] = []


@pytest.mark.parametrize("seed", range(150))
def test_the_log_behaves_like_a_list(seed: int) -> None:
    rng = random.Random(seed)
    disk = Disk()
    model = Model()
    log = Log(DurableLog(1, 0, (), (), (), 0), None, disk, rng.choice([100, 400, 10_000]))
    term, seq = 1, 0
    for _ in range(60):
        action = rng.randrange(7)
        if action <= 1:
            term += rng.random() < 0.3
            fresh = [
                Entry(log.last_index + 1 + offset, term, EntryKind.BATCH, 0, bytes(rng.randrange(60)))
                for offset in range(rng.randrange(1, 4))
            ]
            log.append(fresh)
            model.entries += fresh
        elif action == 2 and log.last_index >= log.first_index:
            index = rng.randint(log.first_index, log.last_index)
            log.truncate(index)
            del model.entries[index - 1 :]
            model.durable = min(model.durable, index - 1)
            model.under_way = [(number, min(last, index - 1)) for number, last in model.under_way]
            term += 1
        elif action == 3 and log.persist_from <= log.last_index:
            seq += 1
            entries = log.take_unpersisted(seq)
            assert list(entries) == model.entries[entries[0].index - 1 :]
            del disk.entries[entries[0].index - disk.first_index :]
            disk.entries += entries
            model.under_way.append((seq, log.last_index))
        elif action == 4 and model.under_way:
            number = rng.choice(model.under_way)[0]
            log.persisted(number)
            model.durable = max(
                [model.durable] + [last for other, last in model.under_way if other <= number]
            )
            model.under_way = [item for item in model.under_way if item[0] > number]
        elif action == 5:
            log.trim(rng.randint(0, log.last_index))
        elif action == 6 and model.durable >= model.first_index and rng.random() < 0.3:
            first_index = rng.randint(model.first_index, model.durable + 1)
            if first_index > disk.first_index:
                disk.compact(first_index)
            log.compact(first_index)
            model.first_index = first_index
        compare(log, model, rng)


def compare(log: Log, model: Model, rng: random.Random) -> None:
    assert (log.first_index, log.last_index) == (model.first_index, len(model.entries))
    assert log.durable_index == model.durable
    assert log.last_term == (model.entries[-1].term if model.entries else 0)
    for index in range(max(0, model.first_index - 1), len(model.entries) + 2):
        expected = 0 if index == 0 else model.entries[index - 1].term if index <= len(model.entries) else None
        assert log.term_at(index) == expected
    if log.last_index >= log.first_index:
        first = rng.randint(log.first_index, log.last_index)
        last = rng.randint(first, log.last_index)
        got: list[Entry] = []
        while len(got) < last - first + 1:
            got += log.slice(first + len(got), last, rng.choice([1, 100, 10_000]))
        assert got == model.entries[first - 1 : last]
        index, term = rng.randint(log.first_index, log.last_index), rng.randint(0, log.last_term + 1)
        fitting = [e.index for e in model.entries[:index] if e.term <= term and e.index >= log.first_index]
        if fitting:
            assert log.last_at_most(index, term) == fitting[-1]


def test_a_slice_stops_before_its_bound_and_gives_one_entry_at_least() -> None:
    log = Log(DurableLog(1, 0, (), (), (), 0), None, Disk(), 1 << 20)
    entries = [Entry(index, 1, EntryKind.BATCH, 0, bytes(100)) for index in range(1, 6)]
    log.append(entries)
    size = size_bytes(entries[0])
    assert [len(log.slice(1, 5, bound)) for bound in (1, size, 2 * size - 1, 2 * size, 99 * size)] == [
        1,
        1,
        1,
        2,
        5,
    ]
    for first, last in ((0, 2), (1, 6), (3, 2)):
        with pytest.raises(InvariantError, match="are not within"):
            log.slice(first, last, 1)


class BrokenReader:
    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    def read(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        assert first <= last and bytes_max > 0
        return self.entries


@pytest.mark.parametrize("given", [[], [Entry(2, 1, EntryKind.BATCH, 0, b"")]])
def test_a_journal_that_gives_something_else_stops_the_node(given: list[Entry]) -> None:
    log = Log(DurableLog(1, 3, ((1, 1),), (), (), 0), None, BrokenReader(given), 1 << 20)
    with pytest.raises(InvariantError, match="the journal gave"):
        log.slice(1, 3, 100)


@pytest.mark.parametrize(
    ("durable", "story"),
    [
        (DurableLog(3, 1, (), (), (), 0), "3..1 is impossible"),
        (DurableLog(0, 0, (), (), (), 0), "0..0 is impossible"),
        (DurableLog(1, 2, (), (), (), 0), "term runs begin at None"),
        (DurableLog(1, 2, ((2, 1),), (), (), 0), "term runs begin at 2"),
        (DurableLog(1, 2, ((1, 2), (2, 1)), (), (), 0), "terms and indexes of a log only rise"),
        (
            DurableLog(1, 2, ((1, 1),), (), (Entry(1, 1, EntryKind.BATCH, 0, b""),), 0),
            "tail begins at 1, not at 2",
        ),
    ],
)
def test_a_view_that_contradicts_itself_is_refused(durable: DurableLog, story: str) -> None:
    with pytest.raises(InvariantError, match=story):
        Log(durable, None, Disk(), 1 << 20)


def test_entries_only_follow_on_the_end() -> None:
    log = Log(DurableLog(1, 0, (), (), (), 0), None, Disk(), 1 << 20)
    with pytest.raises(InvariantError, match="entry 2 cannot follow entry 0"):
        log.append([Entry(2, 1, EntryKind.BATCH, 0, b"")])
    log.append([Entry(1, 2, EntryKind.BATCH, 0, b"")])
    with pytest.raises(InvariantError, match="only rise"):
        log.append([Entry(2, 1, EntryKind.BATCH, 0, b"")])
    with pytest.raises(InvariantError, match="past the durable index 0"):
        log.compact(2)


def test_the_term_before_the_runs_can_be_learned_late() -> None:
    runs = TermRuns([(4, 2), (7, 5)])
    runs.prepend(3, 2)
    assert [runs.term_at(index) for index in (2, 3, 6, 7)] == [None, 2, 2, 5]
    runs.prepend(2, 1)
    assert runs.term_at(2) == 1
    with pytest.raises(InvariantError, match="cannot come before"):
        runs.prepend(1, 3)
    assert runs.first_known == 2
    assert TermRuns().first_known is None


# --- configurations


def test_a_configuration_survives_its_payload() -> None:
    assert parse_configuration(CONFIGURATION.to_payload()) == CONFIGURATION
    assert (
        CONFIGURATION.to_payload()
        == json.dumps(json.loads(CONFIGURATION.to_payload()), sort_keys=True, separators=(",", ":")).encode()
    )
    assert list(parse_configuration(found(CONFIGURATION)).voters) == [1, 2]
    assert CONFIGURATION.peer_ids(1) == (2, 3)
    assert CONFIGURATION.member(3) == Member("h:3", "")
    assert CONFIGURATION.member(4) is None


def test_a_founding_names_all_founders_in_their_order() -> None:
    founders = {node_id: f"h:{node_id}" for node_id in (3, 1, 2)}
    configuration = founding_configuration(
        founders, {node_id: incarnation_of(node_id) for node_id in founders}
    )
    named = [(node_id, Member(f"h:{node_id}", incarnation_of(node_id))) for node_id in (1, 2, 3)]
    assert list(configuration.voters.items()) == named


PLAIN = CONFIGURATION.to_plain()


@pytest.mark.parametrize(
    ("change", "story"),
    [
        ({"voters": {}}, "no voters"),
        ({"voters": None}, "voters must be an object, not None"),
        ({"voters": {"x": {"address": "h:1", "incarnation": ""}}}, "voters has the node id 'x'"),
        ({"voters": {"01": {"address": "h:1", "incarnation": ""}}}, "voters has the node id '01'"),
        ({"voters": {"1": {"address": "h:1"}}}, r"voters\.1 must have exactly the fields"),
        (
            {"voters": {"1": {"address": "", "incarnation": ""}}},
            r"voters\.1\.address must be host:port, not ''",
        ),
        (
            {"voters": {"1": {"address": "h:1", "incarnation": "AB"}}},
            r"voters\.1\.incarnation must be 32 .* not 'AB'",
        ),
        (
            {"voters": {"1": {"address": "h:1", "incarnation": ""}}},
            r"voters\.1\.incarnation must be 32 .* not ''",
        ),
        (
            {"learners": {"4": {"address": "h:4", "incarnation": "a" * 32}}},
            r"learners\.4\.incarnation must be empty, not 'a",
        ),
        (
            {"voters": {str(n): {"address": "h", "incarnation": ""} for n in range(1, 70)}},
            "69 members, more than 64",
        ),
        ({"learners": {"1": {"address": "h:1", "incarnation": ""}}}, "node 1 is both a voter and a learner"),
        ({"retired": "x"}, "retired must be a list, not 'x'"),
        ({"retired": [7]}, "retired must be 32 lower-case hex digits, not 7"),
        ({"cluster_id": "z"}, "cluster_id must be 32"),
        ({"session_key": SESSION_KEY[1:]}, "session_key must be 64"),
        ({"color": 1}, "unknown field 'color'"),
    ],
)
def test_a_payload_with_a_mistake_is_refused_by_name(change: dict[str, object], story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        configuration_from_plain(PLAIN | change)


@pytest.mark.parametrize("name", ["cluster_id", "voters", "learners", "retired"])
def test_a_payload_without_a_field_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"lacks the field {name}"):
        configuration_from_plain({key: value for key, value in PLAIN.items() if key != name})


@pytest.mark.parametrize("payload", [b"", b"[", b"\xff", b"[]", b"[" * 100_000])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(ConfigurationError):
        parse_configuration(payload)


def test_majorities() -> None:
    assert [quorum_size(voters) for voters in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert majority_value([7, 3, 5], 3) == 5
    assert majority_value([7, 3], 3) == 3
    assert majority_value([7], 3) is None
    assert majority_value([9, 8, 1, 1, 1], 5) == 1


# --- the history of configurations


def test_a_configuration_counts_until_the_next_or_its_truncation() -> None:
    history = ConfigurationHistory(None, [])
    assert (history.latest, history.latest_index, history.before(9)) == (None, 0, None)
    one, two = CONFIGURATION.with_learner(7, "h:7"), CONFIGURATION.with_learner(8, "h:8")
    history.append(1, CONFIGURATION)
    assert history.before(0) is None
    history.append(8, one)
    assert (history.before(7), history.before(8)) == (CONFIGURATION, None)
    history.append(9, two)
    assert [history.at(index) for index in (0, 1, 7, 8, 9, 99)] == [
        None,
        CONFIGURATION,
        CONFIGURATION,
        one,
        two,
        two,
    ]
    history.truncate(9)
    assert (history.latest, history.latest_index) == (one, 8)
    history.compact(9)
    assert (history.at(8), history.at(7)) == (one, None)
    with pytest.raises(InvariantError, match="cannot follow"):
        history.append(8, two)
    history.install(20, two, keep_beyond=False)
    assert (history.latest, history.latest_index, history.at(8)) == (two, 20, None)


def test_an_unreadable_configuration_in_the_own_journal_stops_the_node() -> None:
    with pytest.raises(InvariantError, match="entry 4 of the own journal"):
        ConfigurationHistory(
            SnapshotMark(3, 1, 0, CONFIGURATION), [Entry(4, 1, EntryKind.MEMBERS, 0, b"not json")]
        )


# --- progress


def progress_in(flow: Flow) -> Progress:
    progress = Progress("", 5, 0.0)
    if flow is Flow.REPLICATE:
        progress.become_replicate(0.0)
    elif flow is Flow.SNAPSHOT:
        progress.become_snapshot(Outgoing(1, 0, 0, 0, True, 0.0, 1.0))
    return progress


@pytest.mark.parametrize("old", list(Flow))
@pytest.mark.parametrize("new", list(Flow))
def test_flow_moves_only_along_its_table(old: Flow, new: Flow) -> None:
    progress = progress_in(old)
    moves: dict[Flow, Callable[[], None]] = {
        Flow.PROBE: progress.become_probe,
        Flow.REPLICATE: partial(progress.become_replicate, 0.0),
        Flow.SNAPSHOT: partial(progress.become_snapshot, Outgoing(2, 0, 0, 0, True, 0.0, 1.0)),
    }
    if new in FLOW_MOVES[old]:
        moves[new]()
        assert progress.flow is new
    else:
        with pytest.raises(TransitionError, match=f"a peer in {old.value} cannot move to {new.value}"):
            moves[new]()


# --- options


@pytest.mark.parametrize(
    ("options", "story"),
    [
        ({"heartbeat_interval_ms": 101.0}, "heartbeat_interval_ms is 101.0; it must be at most a third"),
        (
            {"election_timeout_min_ms": 700.0},
            "election_timeout_min_ms is 700.0, above election_timeout_max_ms 600.0",
        ),
        ({"retry_delay_min_ms": 50.0}, "retry_delay_min_ms is 50.0"),
        ({"append_bytes_max": 0}, "append_bytes_max is 0; it must be above 0"),
        ({"heartbeat_interval_ms": float("nan")}, "heartbeat_interval_ms is nan"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(options: dict[str, float], story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        Options(**options)  # type: ignore[arg-type]  # wrong on purpose
