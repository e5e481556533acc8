"""What readers of the change log get: one record a transaction, equal on every node, as msgpack or JSON.

Decides the fields of a record and the order of its keys. A failed write and a change of sessions are records
without changes, so zxids rise by one from record to record; only a forced start and an import let them jump.
Entry 1 is the record of zxid 0. An ACL's change is an update with equal images. Pure.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypedDict

import msgpack

from quorum.changelog.blocks import Block, body_of
from quorum.core.records import data_of, version_of

#: whose value each record names
CONTROLLER_EPOCH_PATH: Final = "/controller_epoch"
#: no change below them is recorded: states of brokers' transactions would crowd out all other history, and
#: what is kept of users' passwords is for brokers alone
UNRECORDED: Final = ("/transactions/", "/config/users/")
MSGPACK: Final = "application/msgpack"
JSON_LINES: Final = "application/x-ndjson"


class ChangeRow(TypedDict):
    """One change of a znode: op is c, u or d; an image is None where the node is absent or its data null."""

    op: str
    path: str
    before: bytes | None
    after: bytes | None
    #: of the data, after a create or update; the last one of a deleted node
    version: int


class ChangelogRow(TypedDict):
    """One committed transaction."""

    zxid: int
    term: int
    #: the leader's wall clock, in milliseconds
    ts: int
    #: whose request it was, or whose session ended; 0: the cluster's own
    session_id: int
    #: whose client sent it; 0: the leader proposed it
    node_id: int
    #: the value of /controller_epoch after it; 0: there is none
    controller_epoch: int
    cluster_id: str
    #: in the order in which they were made
    changes: list[ChangeRow]


def epoch_of(record: bytes | None) -> int:
    """Return the controller epoch that a packed record of /controller_epoch says; 0 where it says none."""
    digits = data_of(record) if record is not None else None
    return int(digits) if digits and digits.isdigit() and len(digits) <= 18 else 0


def rows_of(block: Block) -> Iterator[ChangelogRow]:
    """Return a block's records by rising zxid; changes they have must be known before the next one."""
    body = body_of(block)
    controller_epoch, session_id, node_id = body.controller_epoch, 0, 0
    position, trace = 0, body.trace
    for zxid in range(block.first_zxid, block.last_zxid + 1):
        changes: list[ChangeRow] = []
        while position < len(trace):
            traced = trace[position]
            if len(traced) == 3:
                if traced[0] >= zxid:
                    break
                _, session_id, node_id = traced
            else:
                if traced[0] > zxid:
                    break
                _, path, before, after = traced
                changes.append(_change(path, before, after))
                if path == CONTROLLER_EPOCH_PATH:
                    controller_epoch = epoch_of(after)
            position += 1
        yield {
            "zxid": zxid,
            "term": body.term,
            "ts": block.stamp_ms,
            "session_id": session_id,
            "node_id": node_id,
            "controller_epoch": controller_epoch,
            "cluster_id": body.cluster_id,
            "changes": changes,
        }


def _change(path: str, before: bytes | None, after: bytes | None) -> ChangeRow:
    newest = after if after is not None else before
    assert newest is not None
    return {
        "op": "c" if before is None else "d" if after is None else "u",
        "path": path,
        "before": None if before is None else data_of(before),
        "after": None if after is None else data_of(after),
        "version": version_of(newest),
    }


def as_msgpack(row: ChangelogRow) -> bytes:
    """Return a record as a msgpack map; images are bin."""
    packed: bytes = msgpack.packb(row, use_bin_type=True)
    return packed


def as_json_line(row: ChangelogRow) -> bytes:
    """Return a record as one line of JSON; images are base64."""
    changes = [
        {**change, "before": _base64(change["before"]), "after": _base64(change["after"])}
        for change in row["changes"]
    ]
    return json.dumps({**row, "changes": changes}, separators=(",", ":")).encode() + b"\n"


def _base64(image: bytes | None) -> str | None:
    return None if image is None else base64.b64encode(image).decode("ascii")


#: {content type: how a record is encoded}
ENCODERS: Final[dict[str, Callable[[ChangelogRow], bytes]]] = {MSGPACK: as_msgpack, JSON_LINES: as_json_line}


def render(
    blocks: Iterable[Block], from_zxid: int, bytes_max: int, encode: Callable[[ChangelogRow], bytes]
) -> bytes:
    """Encode records until a bound is reached; at least one, if there is one.

    Args:
        blocks: by rising zxid.
        from_zxid: inclusive.
        bytes_max: the encoded records together are at most this long, unless the first alone is longer.
        encode: one of ENCODERS.
    """
    pieces: list[bytes] = []
    size = 0
    for block in blocks:
        for row in rows_of(block):
            if row["zxid"] < from_zxid:
                continue
            piece = encode(row)
            size += len(piece)
            if pieces and size > bytes_max:
                return b"".join(pieces)
            pieces.append(piece)
    return b"".join(pieces)
