"""The packed record of a znode: 68 bytes of Stat, 4 bytes of ACL reference, the data.

One `bytes` object per leaf, because the collector does not track it and it costs half of an object with
slots. The first 68 bytes are the Stat as it goes on the wire (jute, big endian), so a reply slices and never
packs. The ACL field holds the number of an ACL in the table; its top bit says that the data is null (an empty
and a null value differ).

    0 czxid · 8 mzxid · 16 ctime · 24 mtime · 32 version · 36 cversion · 40 aversion · 44 ephemeralOwner ·
    52 dataLength · 56 numChildren · 60 pzxid · 68 ACL field · 72 data

In the record of an inner node cversion, numChildren and pzxid are stale: `tree.Directory` counts them and
patches the Stat. Pure functions, no state. Source: ZooKeeper 3.9 zookeeper.jute (Stat).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quorum.core.codes import INT32_MAX

STAT_BYTES: Final = 68
HEADER_BYTES: Final = 72
#: in the ACL field: the data is null
NULL_DATA: Final = 1 << 31
#: in the ACL field: the number of the ACL
ACL_MASK: Final = NULL_DATA - 1

_INT32_MIN: Final = -(2**31)

#: every field of the header: (czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, data length,
#: children, pzxid, ACL)
HEADER: Final = Struct(">qqqqiiiqiiqI")
#: what a setData keeps: (czxid, ctime, version, cversion to owner, numChildren to pzxid, ACL field)
KEPT: Final = Struct(">8s8x8s8xi16s4x12sI")
#: the header after a setData: (czxid, mzxid, ctime, mtime, version, cversion to owner, data length,
#: numChildren to pzxid, ACL field)
CHANGED: Final = Struct(">8sq8sqi16si12sI")
_VERSION: Final = Struct(">32xi")
_MTIME: Final = Struct(">24xq")
_CZXID: Final = Struct(">q")
_AVERSION: Final = Struct(">40xi")
_INT: Final = Struct(">i")
_UINT: Final = Struct(">I")
_MZXID: Final = Struct(">8xq")
_PZXID: Final = Struct(">60xq")
_OWNER: Final = Struct(">44xq")
_ACL_FIELD: Final = Struct(">68xI")
_CVERSION: Final = Struct(">i")
_CHILDREN_PZXID: Final = Struct(">iq")


def next_version(version: int) -> int:
    """Return the version after one: int32 wraps, and -1 is skipped because it means "any" in a request.

    Source: ZOOKEEPER-4743.
    """
    if version == INT32_MAX:
        return _INT32_MIN
    return version + 1 if version != -2 else 0


def wrap_int32(number: int) -> int:
    """Return the int32 that an unbounded counter shows as, as Java's arithmetic would."""
    return ((number - _INT32_MIN) & 0xFFFFFFFF) + _INT32_MIN


def patch_children(stat: bytes, cversion: int, children: int, pzxid: int) -> bytes:
    """Return a Stat with the counters of an inner node.

    Args:
        stat: 68 bytes or more; what follows the Stat is left out.
        cversion: unbounded; stored as the int32 that it wraps to.
        children: number of children.
        pzxid: zxid of the last creation or deletion of a child.
    """
    return (
        stat[:36] + _CVERSION.pack(wrap_int32(cversion)) + stat[40:56] + _CHILDREN_PZXID.pack(children, pzxid)
    )


def version_of(record: bytes) -> int:
    """Return the data version."""
    version: int = _VERSION.unpack_from(record)[0]
    return version


def czxid_of(record: bytes) -> int:
    """Return the zxid that created the node."""
    czxid: int = _CZXID.unpack_from(record)[0]
    return czxid


def mtime_of(record: bytes) -> int:
    """Return the stamp of the last change of the data, in milliseconds."""
    mtime_ms: int = _MTIME.unpack_from(record)[0]
    return mtime_ms


def aversion_of(record: bytes) -> int:
    """Return the version of the ACL."""
    aversion: int = _AVERSION.unpack_from(record)[0]
    return aversion


def with_acl(record: bytes, aversion: int, number: int) -> bytes:
    """Return a record with another ACL and its version; whether the data is null stays."""
    field = number | acl_field_of(record) & NULL_DATA
    return record[:40] + _INT.pack(aversion) + record[44:68] + _UINT.pack(field) + record[HEADER_BYTES:]


def mzxid_of(record: bytes) -> int:
    """Return the zxid of the last change of the data."""
    mzxid: int = _MZXID.unpack_from(record)[0]
    return mzxid


def pzxid_of(record: bytes) -> int:
    """Return the zxid of the last change of the children (stale in the record of an inner node)."""
    pzxid: int = _PZXID.unpack_from(record)[0]
    return pzxid


def owner_of(record: bytes) -> int:
    """Return the session that owns an ephemeral, or 0."""
    owner: int = _OWNER.unpack_from(record)[0]
    return owner


def acl_field_of(record: bytes) -> int:
    """Return the ACL field: the number of the ACL, and NULL_DATA where the data is null."""
    field: int = _ACL_FIELD.unpack_from(record)[0]
    return field


def data_of(record: bytes) -> bytes | None:
    """Return the data, None where it is null."""
    if record[STAT_BYTES] & 0x80:
        return None
    return record[HEADER_BYTES:]
