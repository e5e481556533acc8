"""What compaction leaves of batches, compared with a model that knows only keys, values and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.batches import DELETE_HORIZON, checked_batches, parse_header
from broker.log.cleaning.aborted import Transactions
from broker.log.cleaning.dirtiness import ClosedSegment, dirtiness, grouped
from broker.log.cleaning.keys import LastOffsets
from broker.log.cleaning.rewriting import Batch, Rules, cleaned
from broker.log.opened import opened
from broker.log.records import walk
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import GZIP, NONE, NOW_MS, SNAPPY, XERIAL, ZSTD, altered, keyed

RETENTION_MS = 1000
KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d", b"e"])
VALUES = st.sampled_from([None, b"", b"one", b"two" * 50])
SENT = st.tuples(
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
    st.sampled_from([NONE, GZIP, SNAPPY, XERIAL, ZSTD, 3]),
    st.sampled_from([-1, 7, 8]),
    st.integers(0, 1),
)


class Row(NamedTuple):
    """One record as a reader sees it."""

    offset: int
    key: bytes | None
    has_value: bool
    time_ms: int
    content: bytes


def log_of(sent: Sequence[tuple[list[tuple[bytes | None, bytes | None]], int, int, int]]) -> list[Batch]:
    """Batches as a leader stores them."""
    found: list[Batch] = []
    offset = epoch = 0
    sequences: dict[int, int] = {}
    for items, codec, producer_id, newer in sent:
        epoch += newer
        sequence = sequences.get(producer_id, 0)
        producer = (-1, -1, -1) if producer_id < 0 else (producer_id, 0, sequence)
        sequences[producer_id] = sequence + len(items)
        content = altered(
            keyed(items, codec=codec, producer=producer, at_ms=NOW_MS + offset),
            base_offset=offset,
            partition_leader_epoch=epoch,
        )
        found.append((parse_header(content, 0), content))
        offset += len(items)
    return found


def rows(batches: Sequence[Batch]) -> list[Row]:
    return [
        Row(
            *(header.base_offset + each.offset_delta, each.key, each.has_value),
            *(header.base_timestamp + each.timestamp_delta, each.whole[each.rest :]),
        )
        for header, content in batches
        for each in (opened(header, content) if header.records_count else ())
    ]


def check_whole(batches: Sequence[Batch], end_offset: int) -> None:
    """Each batch begins where the one before it ends, and is as its header says."""
    offset = 0
    for header, content in batches:
        assert checked_batches(memoryview(content)) == [header]
        assert header.base_offset == offset
        offset = header.last_offset + 1
        if header.records_count:
            times = [each.time_ms for each in rows([(header, content)])]
            assert header.max_timestamp == max(times)
            assert walk(header, content).timestamp == max(times)
    assert offset == end_offset


def remembered(batches: Sequence[Batch]) -> set[tuple[int, int]]:
    last = {header.producer_id: header.last_offset for header, _ in batches if header.producer_id >= 0}
    return set(last.items())


def one_round(batches: list[Batch], first_dirty: int, keys_max: int, now_ms: int) -> tuple[list[Batch], int]:
    """Compact once; returns the log and where its dirty part begins now."""
    end_offset = batches[-1][0].last_offset + 1
    known = LastOffsets(first_dirty, keys_max, Transactions())
    for header, content in batches:
        if header.base_offset >= first_dirty and not known.take(header, content):
            break
    rules = Rules(
        *(known.last, known.survivors(), first_dirty, known.end_offset),
        *(now_ms, RETENTION_MS, remembered(batches)),
    )
    return list(cleaned(batches, rules, Transactions(), end_offset)), known.end_offset


@given(sent=st.lists(SENT, min_size=1, max_size=12), keys_max=st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_the_last_record_of_each_key_stays(
    sent: list[tuple[list[tuple[bytes | None, bytes | None]], int, int, int]], keys_max: int
) -> None:
    before = log_of(sent)
    end_offset = before[-1][0].last_offset + 1
    model: dict[bytes, Row] = {row.key: row for row in rows(before) if row.key is not None}
    batches, first_dirty = before, 0
    while first_dirty < end_offset:
        batches, went_to = one_round(batches, first_dirty, keys_max, NOW_MS)
        check_whole(batches, end_offset)
        assert went_to > first_dirty
        first_dirty = went_to
    assert rows(batches) == sorted(model.values())
    for header, _ in batches:
        known = next(each for each, _ in before if each.base_offset <= header.base_offset <= each.last_offset)
        assert header.partition_leader_epoch == known.partition_leader_epoch
        if header.records_count:
            assert header.attributes & 7 == known.attributes & 7
    kept = {(each.producer_id, each.last_offset, each.last_sequence) for each, _ in batches}
    for producer_id, last_offset in remembered(before):
        whole = next(each for each, _ in before if each.last_offset == last_offset)
        assert (producer_id, last_offset, whole.last_sequence) in kept
    # Tombstones stay until their horizon, and then go for ever.
    again, _ = one_round(batches, end_offset, keys_max, NOW_MS + RETENTION_MS - 1)
    assert rows(again) == rows(batches)
    later, _ = one_round(again, end_offset, keys_max, NOW_MS + RETENTION_MS)
    check_whole(later, end_offset)
    assert rows(later) == sorted(row for row in model.values() if row.has_value)


def test_a_horizon_is_written_once_and_keeps_times() -> None:
    before = log_of([([(b"a", b"1"), (b"b", None)], GZIP, -1, 0)])
    after, _ = one_round(before, 0, 10, NOW_MS)
    ((header, _),) = after
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert [row.time_ms for row in rows(after)] == [NOW_MS, NOW_MS]
    assert one_round(after, 0, 10, NOW_MS + 5)[0] == after


def test_a_topic_that_deletes_too_loses_old_records() -> None:
    batches = log_of([([(b"a", b"1")], NONE, -1, 0), ([(b"b", b"2")], NONE, -1, 0)])
    rules = Rules({}, (), 0, 2, NOW_MS, 0, oldest_ms=NOW_MS + 1)
    assert [row.key for row in rows(list(cleaned(batches, rules, Transactions(), 2)))] == [b"b"]


def segment(base: int, *, size: int = 100, at_ms: int = NOW_MS) -> ClosedSegment:
    return ClosedSegment(base, base + 10, size, at_ms, at_ms)


@pytest.mark.parametrize(
    ("first_dirty", "uncleanable_from", "options", "expected"),
    [
        (0, 40, {}, (0, 40, 400, 1.0, True)),
        (20, 40, {}, (20, 40, 200, 0.5, False)),
        (20, 40, {"min_cleanable_dirty_ratio": 0.4}, (20, 40, 200, 0.5, True)),
        (0, 39, {}, (0, 30, 300, 1.0, True)),
        (0, 40, {"min_compaction_lag_ms": 1}, (0, 0, 0, 0.0, False)),
        (0, 40, {"min_cleanable_dirty_ratio": 1.0}, (0, 40, 400, 1.0, False)),
        (20, 40, {"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 4}, (20, 40, 200, 0.5, True)),
        (99, 40, {}, (0, 40, 400, 1.0, True)),
        (40, 40, {}, (40, 40, 0, 0.0, False)),
    ],
)
def test_a_log_is_due_by_its_dirty_share_and_age(
    first_dirty: int,
    uncleanable_from: int,
    options: dict[str, float],
    expected: tuple[int, int, int, float, bool],
) -> None:
    wanted = TopicSettings(cleanup_policy="compact", **options)  # type: ignore[arg-type]  # of the right type
    segments = [segment(base) for base in (0, 10, 20, 30)]
    assert (
        dirtiness(
            segments,
            first_dirty,
            uncleanable_from,
            wanted,
            NOW_MS + 5 if "max_compaction_lag_ms" in options else NOW_MS,
        )
        == expected
    )


def test_small_segments_become_one_of_segment_bytes() -> None:
    segments = [segment(base, size=size) for base, size in ((0, 60), (10, 30), (20, 30), (30, 200), (40, 1))]
    assert [[each.base_offset for each in group] for group in grouped(segments, 100)] == [
        [0, 10],
        [20],
        [30],
        [40],
    ]
    far = [segment(0, size=1), ClosedSegment(2**31 - 1, 2**31 + 5, 1, 0, 0)]
    assert len(grouped(far, 100)) == 2
