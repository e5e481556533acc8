"""Rows of the change log as Arrow batches: one row a change of a znode.

Decides the columns, and how many rows make a batch: small batches are slower than tuples. Transactions that
changed nothing have no rows. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

#: the columns, as DDL
SCHEMA: Final = (
    "zxid BIGINT, txn_index INT, txn_size INT, term BIGINT, ts TIMESTAMP, op STRING, path STRING, "
    "before BINARY, after BINARY, version INT, session_id BIGINT, controller_epoch INT, cluster_id STRING"
)
ROWS_MAX: Final = 20_000
IMAGE_BYTES_MAX: Final = 8 * 1024 * 1024
INT32_MAX: Final = (1 << 31) - 1
_TYPES: Final = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
ARROW_SCHEMA: Final = pa.schema(
    [(name, _TYPES[kind]) for name, kind in (column.split() for column in SCHEMA.split(", "))]
)

Record = Mapping[str, Any]


class SourceRow(NamedTuple):
    """One row, its columns in the order of SCHEMA."""

    zxid: object
    txn_index: object
    txn_size: object
    term: object
    ts: object
    op: object
    path: object
    before: bytes | None
    after: bytes | None
    version: object
    session_id: object
    controller_epoch: object
    cluster_id: object


def batches(records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """Make batches of the rows of transactions.

    Args:
        records: as GET /v1/changelog gives them.
    """
    return _coalesced(row for record in records for row in _rows_of(record))


def _rows_of(record: Record) -> Iterator[SourceRow]:
    changes = record["changes"]
    of_all = _of_transaction(record)
    for index, change in enumerate(changes):
        images = change["before"], change["after"]
        yield SourceRow(
            *(record["zxid"], index, len(changes), *of_all[:2], change["op"], change["path"], *images),
            *(change["version"], record["session_id"], *of_all[2:]),
        )


def tree_batches(
    as_of_zxid: int, record: Record, nodes: Iterable[Mapping[str, Any]]
) -> Iterator[pa.RecordBatch]:
    """Make batches of the znodes of a tree, as rows of op r.

    Args:
        as_of_zxid: behind which the tree was so.
        record: of that transaction.
        nodes: as GET /v1/changelog/tree gives them.
    """
    of_all = _of_transaction(record)
    return _coalesced(
        SourceRow(
            *(as_of_zxid, index, None, *of_all[:2], "r", node["path"], None, _image(node["data"])),
            *(node["version"], node["ephemeral_owner"], *of_all[2:]),
        )
        for index, node in enumerate(nodes)
    )


def _image(data: str | None) -> bytes | None:
    return None if data is None else base64.b64decode(data)


def _of_transaction(record: Record) -> tuple[object, object, object, object]:
    """Return term, microseconds, controller epoch and cluster id."""
    epoch = record["controller_epoch"]
    # Whoever may write that znode may write any number there; a controller's fits.
    controller_epoch = epoch if epoch <= INT32_MAX else None
    return record["term"], record["ts"] * 1000, controller_epoch, record["cluster_id"]


def _coalesced(rows: Iterable[SourceRow]) -> Iterator[pa.RecordBatch]:
    batch: list[SourceRow] = []
    image_bytes = 0
    for row in rows:
        batch.append(row)
        image_bytes += len(row.before or b"") + len(row.after or b"")
        if len(batch) >= ROWS_MAX or image_bytes >= IMAGE_BYTES_MAX:
            yield _batch(batch)
            batch, image_bytes = [], 0
    if batch:
        yield _batch(batch)


def _batch(rows: list[SourceRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
