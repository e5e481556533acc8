"""Entries of the brokers' queues of state changes."""

from __future__ import annotations

import json

import pytest

from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord

ENTRY = QueueEntryRecord(
    ChangeKind.LEADER_AND_ISR, ControllerEpoch(3), BrokerGeneration(2**40), b"\x00\xffbody"
)


def test_an_entry_is_read_as_it_was_written() -> None:
    assert QueueEntryRecord.decode("/brokers/state/1/0000000000", ENTRY.encode()) == ENTRY
    assert json.loads(ENTRY.encode()) == {
        "version": 1,
        "kind": "LeaderAndIsr",
        "controller_epoch": 3,
        "broker_epoch": 2**40,
        "request": "AP9ib2R5",
    }


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("version", 2, "version"),
        ("kind", "Fetch", "one of LeaderAndIsr, StopReplica, UpdateMetadata"),
        ("controller_epoch", -1, "controller_epoch"),
        ("broker_epoch", True, "broker_epoch"),
        ("request", "no base64!", "a string in base64"),
        ("request", None, "request"),
    ],
)
def test_a_malformed_entry_is_refused_by_its_field(field: str, value: object, named: str) -> None:
    fields = {**json.loads(ENTRY.encode()), field: value}
    with pytest.raises(MetadataDecodeError, match=named):
        QueueEntryRecord.decode("/brokers/state/1/0000000000", json.dumps(fields).encode())
