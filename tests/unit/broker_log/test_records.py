"""The records inside of a batch: what is taken, what is refused, and that both walks say the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from unittest import mock

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import records
from broker.log.batches import HEADER, parse_header
from broker.log.errors import AppendError, UnreadableBatchError
from broker.log.produced import UNFOLDED_FACTOR, checked_batch_of, produced_batch
from broker.log.records import Sought, Walked, walk
from broker.log.unfolding import MalformedError
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import (
    EPOCH,
    GZIP,
    KEY,
    LZ4,
    NONE,
    NOW_MS,
    SNAPPY,
    XERIAL,
    ZSTD,
    Broker,
    altered,
    append_batch,
    batch,
    compressed,
    headers,
    offset_for_time,
    read_all,
    varint,
)

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "xerial": XERIAL, "lz4": LZ4, "zstd": ZSTD}
BASE_MS = 1_000_000


class Sent(NamedTuple):
    """One record; None: null."""

    delta_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def encoded(record: Sent, number: int) -> bytes:
    def nullable(content: bytes | None) -> bytes:
        return varint(-1) if content is None else varint(len(content)) + content

    body = b"\0" + varint(record.delta_ms) + varint(number) + nullable(record.key) + nullable(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += varint(len(key)) + key + nullable(value)
    return varint(len(body)) + body


def with_records(content: bytes, count: int, *, codec: int = NONE, max_delta_ms: int = 0) -> bytes:
    """A batch with these bytes as its records, and a right checksum."""
    folded = compressed(content, codec)
    whole = batch([BASE_MS])[: HEADER.size] + folded
    return altered(
        whole,
        batch_length=49 + len(folded),
        attributes=codec & 7,
        last_offset_delta=count - 1,
        records_count=count,
        base_timestamp=BASE_MS,
        max_timestamp=BASE_MS + max_delta_ms,
    )


BYTES = st.binary(max_size=9) | st.integers(10, 300).map(lambda size: b"\x81" * size)
#: so that lengths of two bytes become such of three
LONG = st.integers(8100, 8300).map(bytes)
RECORD = st.builds(
    Sent,
    st.integers(-(2**40), 2**40) | st.integers(-70, 70),
    st.none() | BYTES,
    st.none() | BYTES | LONG,
    st.lists(st.tuples(BYTES, st.none() | BYTES), max_size=3) | st.just([]),
)
USUAL = st.builds(
    Sent,
    st.integers(-(2**27), 2**27 - 1) | st.integers(-70, 70),
    st.none() | BYTES,
    st.none() | BYTES | LONG,
    st.just(()),
)


#: what a walk is asked to look for besides: the smallest delta but for this one
OLDEST = Sought(smallest=records._NEVER, no_time=-3)


def outcome(content: bytes, count: int, stop: int = records._NEVER) -> object:
    try:
        return records._walk_plain(content, 0, len(content), count, sought=OLDEST._replace(stop=stop))
    except MalformedError:
        return None


def in_columns(content: bytes, count: int) -> object:
    """In chunks of 64 records, of which a quarter may be unusual; runs of one length are looked for."""
    with mock.patch.multiple(records, _CHUNK=64, _ODD_PART=4, _RUN_MIN=32):
        try:
            found = records._walk_columns(content, 0, len(content), count, len(content), OLDEST)
        except MalformedError:
            return None
    return outcome(content, count) if found is None else found


@given(st.lists(RECORD, min_size=1, max_size=12), st.integers(-(2**41), 2**41) | st.integers(-80, 80))
def test_a_walk_finds_what_was_sent(sent: list[Sent], stop: int) -> None:
    content = b"".join(encoded(each, number) for number, each in enumerate(sent))
    upto = next((n for n, each in enumerate(sent) if each.delta_ms >= stop), len(sent) - 1)
    deltas = [each.delta_ms for each in sent[: upto + 1]]
    found = records._walk_plain(content, 0, len(content), len(sent), sought=OLDEST._replace(stop=stop))
    assert found[:2] == (max(deltas), deltas.index(max(deltas)))
    assert found[2] == any(each.key is None for each in sent[: upto + 1])
    if stop > max(deltas):
        times = [each for each in deltas if each != OLDEST.no_time]
        assert found[3] == min(times, default=records._NEVER)


@given(
    st.lists(RECORD, max_size=6),
    st.lists(USUAL, min_size=1, max_size=4),
    st.integers(30, 90),
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), max_size=2),
    st.integers(-1, 1) | st.just(0),
)
@settings(max_examples=200, deadline=None)
def test_both_walks_find_the_same_and_refuse_the_same(
    unusual: list[Sent],
    usual: list[Sent],
    count: int,
    order: Random,
    mutations: list[tuple[int, int]],
    more: int,
) -> None:
    sent = [*unusual, *(order.choice(usual) for _ in range(count // 4))]
    order.shuffle(sent)
    place = order.randrange(len(sent))
    sent[place:place] = [usual[0]] * count
    content = bytearray(b"".join(encoded(each, number) for number, each in enumerate(sent)))
    for position, byte in mutations:
        content[position % len(content)] = byte
    assert in_columns(bytes(content), len(sent) + more) == outcome(bytes(content), len(sent) + more)


@pytest.mark.parametrize("delta_ms", [0, -3, 100, 2**20, -(2**26)])
@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 70])
@pytest.mark.parametrize("value", [None, b"", b"v" * 60, b"v" * 2000])
@pytest.mark.parametrize("unusual", [0, 3])
def test_columns_leave_a_few_unusual_records_to_the_plain_walk(
    delta_ms: int, key: bytes | None, value: bytes | None, unusual: int
) -> None:
    odd = [Sent(2**30, key, value), Sent(1, b"k" * 9000, b"v"), Sent(2, b"k", b"v", [(b"h", b"x")])][:unusual]
    sent = [Sent(delta_ms, key, value)] * 50
    sent += [*odd, Sent(delta_ms + 1, key, value), *sent]
    content = b"".join(encoded(each, number) for number, each in enumerate(sent))
    found = records._walk_columns(content, 0, len(content), len(sent), len(content))
    assert found == (2**30 if unusual else delta_ms + 1, 50, key is None, -records._NEVER)


def test_columns_see_a_last_byte_that_is_no_end_of_a_record() -> None:
    content = bytearray(b"".join(encoded(Sent(0, None, b"v"), number) for number in range(100)))
    content[len(content) // 100 * 50 - 1] = 2
    with pytest.raises(MalformedError):
        records._walk_columns(bytes(content), 0, len(content), 100, len(content))


def test_columns_take_offsets_of_any_width() -> None:
    content = b"".join(encoded(Sent(number % 7, b"k", b"v"), number) for number in range(20_000))
    assert records._walk_columns(content, 0, len(content), 20_000, 100) == (6, 6, False, -records._NEVER)
    wrong = bytearray(content)
    wrong[-6] ^= 0x01
    with pytest.raises(MalformedError, match="record 19999"):
        records._walk_columns(bytes(wrong), 0, len(wrong), 20_000, 100)


def test_what_takes_long_is_refused_where_it_must_not() -> None:
    """Headers of two bytes cost half a microsecond a byte."""
    sent = [Sent(0, None, None, [(b"", b"")] * 10_000)] + [Sent(0, None, b"v")] * 100
    content = b"".join(encoded(each, number) for number, each in enumerate(sent))
    for count in (1, len(sent)):
        whole = with_records(content if count > 1 else encoded(sent[0], 0), count)
        assert walk(parse_header(whole, 0), whole).key_missing
        with pytest.raises(UnreadableBatchError, match="one by one"):
            walk(parse_header(whole, 0), whole, plain_bytes_max=10_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3, 500])
@pytest.mark.parametrize("columns", [True, False])
def test_the_walk_finds_time_and_missing_keys(
    codec: str, count: int, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not columns:
        monkeypatch.setattr(records, "np", None)
    deltas = [(number * 7) % 11 for number in range(count)]
    for key in (b"key", None):
        sent = [Sent(delta, b"k" if number else key, b"v" * 20) for number, delta in enumerate(deltas)]
        content = b"".join(encoded(each, number) for number, each in enumerate(sent))
        whole = with_records(content, count, codec=CODECS[codec])
        largest = max(deltas)
        expected = Walked(BASE_MS + largest, deltas.index(largest), key is None)
        assert walk(parse_header(whole, 0), whole) == expected
        found = walk(parse_header(whole, 0), whole, at_least=BASE_MS + largest)
        assert found[:2] == expected[:2]


GOOD = encoded(Sent(5, b"key", b"value", [(b"h", b"x"), (b"i", None)]), 0)
BODY = GOOD[1:]
MALFORMED = {
    "nothing": b"",
    "a byte more": GOOD + b"\0",
    "a byte less": GOOD[:-1],
    "a length of zero": b"\0" * 8,
    "a negative length": b"\1" + BODY,
    "a length that is too short": varint(len(BODY) - 1) + BODY,
    "a length that is too long": varint(len(BODY) + 1) + BODY + b"\0",
    "a length without an end": b"\x80" * 12,
    "an offset that does not follow": encoded(Sent(5, b"key", b"value"), 1),
    "a negative offset": encoded(Sent(5, b"key", b"value"), -1),
    "a key below null": b"\x0e" + b"\0\0\0\3\0\0\0",
    "a value below null": b"\x0e" + b"\0\0\0\1\3\0\0",
    "a key that leads out": b"\x0e" + b"\0\0\0\x7e\0\0\0",
    "a value that leads out": b"\x0e" + b"\0\0\0\1\x7e\0\0",
    "a value that leads far out": b"\x16" + b"\0\0\0\1\xfe\xff\xff\xff\x0f\0\0",
    "headers that do not fit": b"\x0e" + b"\0\0\0\1\1\x7e\0",
    "a number of headers below zero": b"\x0c" + b"\0\0\0\1\1\1",
    "a header's key below zero": b"\x10" + b"\0\0\0\1\1\2\1\0",
    "a header's value below null": b"\x10" + b"\0\0\0\1\1\2\0\3",
    "a header that leads out": b"\x10" + b"\0\0\0\1\1\2\x10\0",
    "a time of eleven bytes": b"\x22" + b"\0" + b"\x80" * 10 + b"\0\0\1\1\0\0",
    "a time that no header can hold": b"\x1e" + b"\0" + b"\xfe" + b"\xff" * 8 + b"\1\0\1\1\0",
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", MALFORMED)
def test_records_that_do_not_fit_are_refused(broker: Broker, name: str, codec: str) -> None:
    log = broker.create()
    whole = with_records(MALFORMED[name], 1, codec=CODECS[codec])
    with pytest.raises(AppendError, match="the records of the batch") as caught:
        append_batch(log, whole, EPOCH, NOW_MS)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_records_of_a_reference_encoder_are_taken(broker: Broker) -> None:
    log = broker.create()
    append_batch(log, with_records(GOOD, 1, max_delta_ms=5), EPOCH, NOW_MS)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("count", [2, 2**31 - 1])
def test_a_count_that_does_not_fit_its_bytes_is_refused(broker: Broker, count: int) -> None:
    """61 bytes of 2³¹ − 1 records made the next batch begin a segment."""
    log = broker.create()
    for content in (b"", GOOD):
        with pytest.raises(AppendError) as caught:
            append_batch(log, with_records(content, count), EPOCH, NOW_MS)
        assert caught.value.error_code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_garbage_instead_of_compressed_records_is_refused(broker: Broker, codec: str) -> None:
    log = broker.create()
    whole = batch([1, 2], codec=CODECS[codec], value=b"x" * 100)
    with pytest.raises(AppendError) as caught:
        append_batch(log, altered(whole[:66] + b"\xa5" * (len(whole) - 66)), EPOCH, NOW_MS)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_records_unfold_to_sixteen_times_the_largest_batch(codec: str) -> None:
    settings = TopicSettings(max_message_bytes=10_000)
    most = 10_000 * UNFOLDED_FACTOR
    fits = encoded(Sent(0, b"k", bytes(most - 12)), 0)
    too_large = encoded(Sent(0, b"k", bytes(most - 11)), 0)
    assert (len(fits), len(too_large)) == (most, most + 1)
    checked_batch_of(produced_batch(with_records(fits, 1, codec=CODECS[codec]), settings, KEY))
    with pytest.raises(AppendError) as caught:
        checked_batch_of(produced_batch(with_records(too_large, 1, codec=CODECS[codec]), settings, KEY))
    assert caught.value.error_code is ErrorCode.INVALID_RECORD


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    """256 MiB of zeros in 8 KiB."""
    bomb = bytes(cramjam.zstd.compress(bytes(256 << 20)))
    whole = altered(batch([1], codec=ZSTD)[: HEADER.size] + bomb, batch_length=49 + len(bomb))
    with pytest.raises(AppendError, match="at most 16777408 bytes") as caught:
        checked_batch_of(produced_batch(whole, TopicSettings(), KEY))
    assert caught.value.error_code is ErrorCode.INVALID_RECORD


def test_the_largest_timestamp_is_written_into_the_header(broker: Broker) -> None:
    """Kafka does so, too; some clients send none."""
    log = broker.create()
    append_batch(log, altered(batch([100, 300, 200]), max_timestamp=-1), EPOCH, NOW_MS)
    append_batch(log, altered(batch([50], codec=LZ4), max_timestamp=9000), EPOCH, NOW_MS)
    for each in (log, broker.revive()):
        assert [header.max_timestamp for header in headers(read_all(each))] == [300, 50]
        assert (offset_for_time(each, 250), offset_for_time(each, 301)) == ((300, 1), None)


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")])
def test_memory_that_does_not_suffice_refuses_the_batch(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(records, "unfolded", refuse)
    whole = batch([1])
    with pytest.raises(UnreadableBatchError):
        walk(parse_header(whole, 0), whole)
