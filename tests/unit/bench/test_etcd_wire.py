"""etcd's messages: bytes as Protocol Buffers says, decoded field by field, and the jobs made of them."""

from __future__ import annotations

import pytest

from tests.support import etcd_load, etcd_wire
from tests.support.etcd_wire import Guard, bytes_field, fields, number_field, number_of, varint
from tests.support.wire_load import Job


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_numbers_as_in_the_description_of_the_encoding(number: int, encoded: bytes) -> None:
    assert varint(number) == encoded
    assert list(fields(b"\x08" + encoded)) == [(1, number)]


def test_a_put_and_its_lease() -> None:
    assert etcd_wire.put("k", b"v") == b"\x0a\x01k\x12\x01v"
    assert number_of(etcd_wire.put("k", b"v", 300), 3) == 300


def test_a_read_says_whether_it_is_serializable() -> None:
    assert number_of(etcd_wire.get("k", serializable=True), 7) == 1
    assert number_of(etcd_wire.get("k", serializable=False), 7) == 0


def test_a_transaction_compares_versions_and_puts() -> None:
    message = etcd_wire.guarded([Guard("fence", 1), Guard("new", 0)], [("k", b"v")])
    compares = etcd_wire.bytes_of(message, 1)
    assert list(fields(compares[0])) == [(3, b"fence"), (4, 1)]
    assert list(fields(compares[1])) == [(3, b"new"), (4, 0)]
    (operation,) = etcd_wire.bytes_of(message, 2)
    assert etcd_wire.bytes_of(operation, 2) == [etcd_wire.put("k", b"v")]


def test_a_transaction_too_large_for_etcd_is_refused() -> None:
    puts = [(f"k{number}", b"") for number in range(129)]
    with pytest.raises(ValueError, match="129 puts; at most 128"):
        etcd_wire.guarded([], puts)


def test_answers() -> None:
    header = bytes_field(1, b"")
    assert etcd_wire.txn_succeeded(header + number_field(2, 1))
    assert not etcd_wire.txn_succeeded(header)
    kv = bytes_field(1, b"k") + number_field(4, 2) + bytes_field(5, b"value")
    assert etcd_wire.value_in(header + bytes_field(2, kv) + number_field(4, 1)) == b"value"
    assert etcd_wire.value_in(header + bytes_field(2, bytes_field(1, b"k"))) == b""
    assert etcd_wire.value_in(header) is None
    assert etcd_wire.granted(header + number_field(2, 77) + number_field(3, 4)) == (77, 4)


def test_events_say_what_ended() -> None:
    gone = number_field(1, 1) + bytes_field(2, bytes_field(1, b"a"))
    written = bytes_field(2, bytes_field(1, b"b") + bytes_field(5, b"v"))
    message = bytes_field(1, b"") + bytes_field(11, gone) + bytes_field(11, written)
    assert etcd_wire.events(message) == [etcd_wire.Event("a", True), etcd_wire.Event("b", False)]
    assert etcd_wire.events(bytes_field(1, b"") + number_field(3, 1)) == []


@pytest.mark.parametrize("message", [b"\x0a\x05ab", b"\x08", b"\x08\x80", b"\x0d\x00\x00\x00\x00"])
def test_a_cut_or_foreign_message_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="byte"):
        list(fields(message))


def test_states_are_guarded_by_the_fence_and_by_their_versions() -> None:
    job = Job("host", "states", "/s", count=5, first=10, batch=2, version=3)
    method, messages = etcd_load.messages_of(job)
    assert method == etcd_wire.TXN
    keys = [[etcd_wire.bytes_of(compare, 3)[0] for compare in etcd_wire.bytes_of(one, 1)] for one in messages]
    assert keys == [
        [b"/s/fence", b"/s/n0000010", b"/s/n0000011"],
        [b"/s/fence", b"/s/n0000012", b"/s/n0000013"],
        [b"/s/fence", b"/s/n0000014"],
    ]
    versions = [number_of(compare, 4) for compare in etcd_wire.bytes_of(messages[0], 1)]
    assert versions == [1, 4, 4], "a key's first version is 1, a znode's 0"


def test_a_job_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'dance' is unknown"):
        etcd_load.messages_of(Job("host", "dance", "/s", 1))
