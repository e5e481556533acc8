"""Which time records have: their producer's within limits, or that of their append."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.log.batches import LOG_APPEND_TIME
from broker.log.errors import AppendError
from broker.log.results import Appended
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import (
    EPOCH,
    GZIP,
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
    expire,
    headers,
    max_timestamp,
    offset_for_time,
    read_all,
    start_anew,
)

APPEND_TIME = TopicSettings(message_timestamp_type="LogAppendTime")
DAY_MS = 86_400_000
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "xerial": XERIAL, "lz4": LZ4, "zstd": ZSTD}


@pytest.mark.parametrize("codec", CODECS)
def test_records_have_the_time_of_their_append(broker: Broker, codec: str) -> None:
    broker.settings = APPEND_TIME
    log = broker.create()
    sent = batch([NOW_MS - 2 * DAY_MS, -1, NOW_MS + 9 * DAY_MS], codec=CODECS[codec])
    assert append_batch(log, sent, EPOCH, NOW_MS) == Appended(0, 2, False, NOW_MS)
    assert append_batch(log, sent, EPOCH, NOW_MS + 5) == Appended(3, 5, False, NOW_MS + 5)
    stored = read_all(log)
    first, second = headers(stored)
    assert (first.max_timestamp, second.max_timestamp) == (NOW_MS, NOW_MS + 5)
    assert first.attributes == CODECS[codec] & 7 | LOG_APPEND_TIME
    assert stored[61 : first.size] == sent[61:]
    for each in (log, broker.revive()):
        found = [offset_for_time(each, time) for time in (0, NOW_MS, NOW_MS + 1, NOW_MS + 6)]
        assert found == [(NOW_MS, 0), (NOW_MS, 0), (NOW_MS + 5, 3), None]
        assert max_timestamp(each) == (NOW_MS + 5, 3)


def test_followers_keep_the_time_of_the_leaders_append(broker: Broker) -> None:
    broker.settings = APPEND_TIME
    log = broker.create()
    append_batch(log, batch([5]), EPOCH, NOW_MS)
    copied = read_all(log)
    start_anew(log, 0)
    log.append_as_follower(copied, NOW_MS + DAY_MS)
    assert read_all(log) == copied


def test_retention_goes_by_the_time_of_the_append(broker: Broker) -> None:
    broker.settings = replace(APPEND_TIME, retention_ms=DAY_MS)
    log = broker.create()
    append_batch(log, batch([NOW_MS + 365 * DAY_MS]), EPOCH, NOW_MS)
    assert expire(log, high_watermark=1, now_ms=NOW_MS + DAY_MS) == 0
    assert expire(log, high_watermark=1, now_ms=NOW_MS + DAY_MS + 1) == 1


def test_a_repeat_is_no_second_append(broker: Broker) -> None:
    broker.settings = APPEND_TIME
    log = broker.create()
    sent = batch([5], producer=(7, 0, 0))
    assert append_batch(log, sent, EPOCH, NOW_MS) == Appended(0, 0, False, NOW_MS)
    for each in (log, broker.revive()):
        assert append_batch(each, sent, EPOCH, NOW_MS + 5) == Appended(0, 0, True, NOW_MS)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_producer_does_not_set_the_time_of_the_append(broker: Broker, timestamp_type: str) -> None:
    broker.settings = TopicSettings(message_timestamp_type=timestamp_type)
    with pytest.raises(AppendError) as caught:
        append_batch(broker.create(), batch(attributes=LOG_APPEND_TIME), EPOCH, NOW_MS)
    assert caught.value.error_code is ErrorCode.INVALID_TIMESTAMP


BEFORE = TopicSettings(message_timestamp_before_max_ms=1000)
AFTER = TopicSettings(message_timestamp_after_max_ms=1000)
BOTH = TopicSettings(message_timestamp_difference_max_ms=1000)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(
    ("settings", "times", "is_taken"),
    [
        (BEFORE, [0, -1000, 5 * DAY_MS], True),
        (BEFORE, [0, -1001, 0], False),
        (BEFORE, [0] * 300 + [-DAY_MS], False),
        (AFTER, [-5 * DAY_MS, 1000], True),
        (AFTER, [0, 1001, 0], False),
        (BOTH, [-1000, 1000], True),
        (BOTH, [-1001], False),
        (BOTH, [1001], False),
        (replace(BOTH, message_timestamp_before_max_ms=2000), [-2000, 1000], True),
        (replace(BOTH, message_timestamp_type="LogAppendTime"), [-DAY_MS, DAY_MS], True),
        (TopicSettings(), [-DAY_MS, DAY_MS], True),
    ],
)
def test_a_time_out_of_range_is_refused(
    broker: Broker, settings: TopicSettings, times: list[int], is_taken: bool, codec: str
) -> None:
    broker.settings = settings
    log = broker.create()
    sent = batch([NOW_MS + each for each in times], codec=CODECS[codec])
    # What the header says does not count.
    for content in (sent, altered(sent, max_timestamp=NOW_MS)):
        if is_taken:
            append_batch(log, content, EPOCH, NOW_MS)
            continue
        with pytest.raises(AppendError, match="The timestamp should be within") as caught:
            append_batch(log, content, EPOCH, NOW_MS)
        assert caught.value.error_code is ErrorCode.INVALID_TIMESTAMP
        assert log.log_end_offset == 0


def test_a_record_without_a_time_is_never_too_old(broker: Broker) -> None:
    broker.settings = BOTH
    log = broker.create()
    assert append_batch(log, batch([-1, NOW_MS, -1]), EPOCH, NOW_MS) == Appended(0, 2, False)
    assert append_batch(log, batch([-1]), EPOCH, NOW_MS) == Appended(3, 3, False)
