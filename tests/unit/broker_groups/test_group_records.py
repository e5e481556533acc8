"""Names of groups as path segments, records of groups and offsets, and what is refused by its field."""

from __future__ import annotations

import json
import uuid

import hypothesis.strategies as st
import pytest
from hypothesis import given

from broker.client.groups import assigned_partitions
from broker.core.groups.roster import ClassicMember, Roster
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.group_records import (
    ClassicGroupRecord,
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    CoordinatorRecord,
    MemberRecord,
    OffsetRecord,
    decode_group,
)
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey

TOPIC_ID = uuid.UUID(int=7)
MEMBER = MemberRecord("m", "i", "c", "/h", 10, 20, (("range", b"\x00\xff"), ("sticky", b"")), b"\x01")
CLASSIC = ClassicGroupRecord(GenerationId(3), "consumer", "range", "m", True, 5, (MEMBER,))
CONSUMER = ConsumerGroupRecord(
    4,
    4,
    "uniform",
    5,
    {"t": (TOPIC_ID, 3)},
    (
        ConsumerMemberRecord(
            *("m", None, "rack", "c", "/h", 20, ("t",), "t.*", None, 4, 3),
            assigned={TOPIC_ID: (0, 2)},
            revoking={TOPIC_ID: (1,)},
            target={TOPIC_ID: (0,)},
        ),
    ),
)


@given(st.text(min_size=1))
def test_every_name_of_a_group_is_one_path_segment(group_id: str) -> None:
    segment = paths.group_path(group_id).removeprefix(f"{paths.GROUPS}/")
    assert "/" not in segment
    assert segment not in (".", "..")
    assert segment.isascii()
    assert paths.group_id_of(segment) == group_id


@pytest.mark.parametrize("segment", ["%", "%zz", "a.b", "%61", "%ff", "ü", "%FF%FE%FD"])
def test_what_is_no_path_of_a_group_is_none(segment: str) -> None:
    assert paths.group_id_of(segment) is None


@pytest.mark.parametrize("record", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_group_is_read_as_it_was_written(record: ClassicGroupRecord | ConsumerGroupRecord) -> None:
    assert decode_group("g", record.encode()) == record


def test_an_offset_and_the_coordinator_are_read_as_they_were_written() -> None:
    offset = OffsetRecord(2**40, -1, "métadata", 1_700_000_000_000)
    assert OffsetRecord.decode("g", PartitionKey("t", 0), offset.encode()) == offset
    assert json.loads(CoordinatorRecord(3).encode()) == {"version": 1, "brokerid": 3}
    assert CoordinatorRecord.decode(CoordinatorRecord(3).encode()) == CoordinatorRecord(3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "other"),
        ("generation", -1),
        ("leader", "nobody"),
        ("members", []),
        ("assigned", True),
        ("state_timestamp", "now"),
    ],
)
def test_a_malformed_group_is_refused_by_its_field(field: str, value: object) -> None:
    changed = {**json.loads(CLASSIC.encode()), field: value}
    with pytest.raises(MetadataDecodeError) as caught:
        decode_group("g", json.dumps(changed).encode())
    assert caught.value.field == field
    assert caught.value.path == paths.group_path("g")


def test_a_subscription_of_any_version_is_read_as_far_as_it_goes() -> None:
    raw = b"\x00\x03" + b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x02bc" + b"\xff\xff\xff\xff and more"
    member = MemberRecord("m", None, "c", "/h", 1, 1, (("range", raw),))
    roster = Roster()
    roster.add(ClassicMember(member))
    assert roster.subscribed_topics() == {"a", "bc"}
    cut = MemberRecord("n", None, "c", "/h", 1, 1, (("range", raw[:9]),))
    roster.add(ClassicMember(cut))
    assert roster.subscribed_topics() is None


def test_an_assignment_of_any_version_is_read_as_far_as_it_goes() -> None:
    raw = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x01a" + b"\x00\x00\x00\x02"
    raw += b"\x00\x00\x00\x04" + b"\x00\x00\x00\x05" + b"\xff\xff\xff\xff"
    assert assigned_partitions(raw) == (PartitionKey("a", 4), PartitionKey("a", 5))
    assert assigned_partitions(b"") == ()
    assert assigned_partitions(raw[:12]) is None
