"""Rows of the change log as Arrow batches: one row a change of a znode.

Decides the columns, and how many rows make a batch: small batches are slower than tuples. Transactions that
changed nothing have no rows. Pure.
Source: pipeline, "Facts of the Python data source API".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

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


def batches(records: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Make batches of the rows of transactions.

    Args:
        records: as GET /v1/changelog gives them.
    """
    rows: list[tuple[object, ...]] = []
    image_bytes = 0
    for record in records:
        zxid, term, ts = record["zxid"], record["term"], record["ts"] * 1000
        session_id, cluster_id = record["session_id"], record["cluster_id"]
        epoch = record["controller_epoch"]
        # Whoever may write the znode may write any number there; a controller's fits.
        controller_epoch = epoch if epoch <= INT32_MAX else None
        changes = record["changes"]
        for index, change in enumerate(changes):
            before, after = change["before"], change["after"]
            image_bytes += len(before or b"") + len(after or b"")
            rows.append(
                (
                    *(zxid, index, len(changes), term, ts, change["op"], change["path"], before, after),
                    *(change["version"], session_id, controller_epoch, cluster_id),
                )
            )
        if len(rows) >= ROWS_MAX or image_bytes >= IMAGE_BYTES_MAX:
            yield _batch(rows)
            rows, image_bytes = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
