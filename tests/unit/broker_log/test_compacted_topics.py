"""What a compacted log takes and what its retention leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.log.errors import AppendError
from broker.log.produced import checked_batch_of
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import (
    EPOCH,
    GZIP,
    NONE,
    NOW_MS,
    ZSTD,
    Broker,
    append_batch,
    expire,
    fill,
    keyed,
    read_all,
)

COMPACTED = TopicSettings(cleanup_policy="compact")
#: Kafka's words.
KEYLESS = "Compacted topic cannot accept message without key in topic partition orders-3"


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_a_batch_with_a_keyless_record_is_refused_whole(broker: Broker, codec: int) -> None:
    log = broker.create(cleanup_policy="compact")
    append_batch(log, keyed([(b"", b"an empty key is a key")], codec=codec), EPOCH, NOW_MS)
    before = read_all(log)
    with pytest.raises(AppendError) as refused:
        append_batch(
            log, keyed([(b"a", b"1"), (None, b"2"), (b"c", None), (None, None)], codec=codec), EPOCH, NOW_MS
        )
    assert refused.value.error_code is ErrorCode.INVALID_RECORD
    assert refused.value.record_errors == [(1, KEYLESS), (3, KEYLESS)]
    assert "due to 2 record errors in total" in refused.value.message
    assert read_all(log) == before


def test_a_change_to_compact_counts_for_checked_batches(broker: Broker) -> None:
    log = broker.create()
    checked = checked_batch_of(log.check(keyed([(None, b"1")])))
    log.configure(COMPACTED)
    with pytest.raises(AppendError, match=KEYLESS):
        log.append_produced(checked, EPOCH, NOW_MS)
    assert log.log_end_offset == 0


def test_only_delete_lets_segments_go(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, retention_bytes=0, retention_ms=1)
    settings = broker.settings
    fill(log, 50)
    end = log.log_end_offset
    log.configure(replace(settings, cleanup_policy="compact"))
    assert expire(log, high_watermark=end, now_ms=NOW_MS + 10_000) == 0
    log.configure(replace(settings, cleanup_policy="compact,delete"))
    assert expire(log, high_watermark=end, now_ms=NOW_MS + 10_000) > 0
