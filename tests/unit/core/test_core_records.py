"""The packed record."""

from __future__ import annotations

import struct

import pytest

from quorum.core import records
from tests.unit.core.driver import decode_stat

FIELDS = (1, 2, 3, 4, 5, 6, 7, 8, 2, 10, 11, 12)


def test_the_stat_is_juted_and_the_data_comes_last() -> None:
    record = records.HEADER.pack(*FIELDS) + b"ab"
    assert decode_stat(record[: records.STAT_BYTES]) == FIELDS[:-1]
    assert records.version_of(record) == 5
    assert records.mzxid_of(record) == 2
    assert records.owner_of(record) == 8
    assert records.pzxid_of(record) == 11
    assert records.acl_field_of(record) == 12
    assert records.data_of(record) == b"ab"


def test_null_data_is_a_bit_of_the_acl_field() -> None:
    null = records.HEADER.pack(*FIELDS[:8], 0, 10, 11, 12 | records.NULL_DATA)
    assert records.data_of(null) is None
    assert records.acl_field_of(null) & records.ACL_MASK == 12
    assert records.data_of(records.HEADER.pack(*FIELDS[:8], 0, 10, 11, records.ACL_MASK)) == b""


def test_what_a_set_data_keeps_fits_what_it_packs() -> None:
    record = records.HEADER.pack(*FIELDS)
    czxid, ctime, version, middle, tail, field = records.KEPT.unpack(record)
    assert records.CHANGED.pack(czxid, 2, ctime, 4, version, middle, 2, tail, field) == record


@pytest.mark.parametrize(
    ("number", "wrapped"),
    [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 + 5, 5), (-(2**31) - 1, 2**31 - 1)],
)
def test_counters_wrap_as_in_java(number: int, wrapped: int) -> None:
    assert records.wrap_int32(number) == wrapped
    patched = records.patch_children(records.HEADER.pack(*FIELDS), number, 3, 99)
    assert struct.unpack_from(">i", patched, 36) == (wrapped,)
    assert decode_stat(patched) == (*FIELDS[:5], wrapped, *FIELDS[6:9], 3, 99)
