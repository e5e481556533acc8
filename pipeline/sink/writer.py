"""The writers that Spark drives: tasks stage, the driver commits.

A stream's query and run are known to its tasks only, as local properties of Spark's; they come to the driver
in the messages of the tasks. Spark calls `abort` also after a commit that took effect, so it removes nothing
that the quorum names.
Source: Python data source API of Spark 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from broker.client import BrokerClient
from broker.client.producing import Chunk
from pipeline.errors import OptionError
from pipeline.sink.committing import Commit, append_once, quorum_hosts, still_needed
from pipeline.sink.encoding import Encoder, SinkRow, TopicShape
from pipeline.sink.ledger import Ledger
from pipeline.sink.options import BOOTSTRAP, STAGING, TOPIC, SinkOptions, check_columns, read_options
from pipeline.sink.staging import StagedFile, Staging
from quorum.errors import QuorateError

if TYPE_CHECKING:
    import pyarrow as pa

#: Topics that a process remembers.
TOPICS_MAX: Final = 1024
_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"
#: The query of every batch write.
_BATCH_QUERY: Final = "batch"


@dataclass
class Staged(WriterCommitMessage):
    """What one task staged."""

    query_id: str
    run_id: str
    #: None: it had no rows.
    file: StagedFile | None


class TopicBatchWriter(DataSourceArrowWriter):
    """`df.write.format("quorate")`: exactly once if the option quorate.sink names the write."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Check everything before Spark starts work."""
        if overwrite:
            raise OptionError("mode", "overwrite", "a topic is only appended to", 'use mode("append")')
        self._options = _checked(options, schema, stream=False)
        self._columns = schema.fieldNames()
        self._run_id = str(uuid.uuid4())
        self._name = self._options.name or self._run_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        staging = Staging(self._options.staging, self._name)
        chunks = encoded(iterator, self._columns, self._options)
        return Staged(_BATCH_QUERY, self._run_id, staging.stage(self._run_id, chunks))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what the tasks staged."""
        files = _files(messages)
        staging = Staging(self._options.staging, self._name)
        if self._options.name is None:
            asyncio.run(self._append_once(staging, files))
            staging.remove_all()
        else:
            asyncio.run(
                commit(self._options, self._name, (_BATCH_QUERY, self._run_id), batch_id=0, files=files)
            )

    async def _append_once(self, staging: Staging, files: Sequence[StagedFile]) -> None:
        async with self._options.brokers() as brokers:
            await append_once(brokers, staging, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged, unless a commit may still need it."""
        if self._options.name is None:
            Staging(self._options.staging, self._name).remove_all()
        else:
            asyncio.run(discard(self._options, self._name, self._run_id, _files(messages)))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("quorate")`: every row once, also when drivers and tasks die."""

    #: What carries a commit out.
    commit_type: Callable[..., Commit] = Commit

    def __init__(self, options: Mapping[str, str], schema: StructType, _overwrite: bool) -> None:
        """Check everything before Spark starts work."""
        self._options = _checked(options, schema, stream=True)
        self._columns = schema.fieldNames()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query_id = context and context.getLocalProperty(_QUERY)
        run_id = context and context.getLocalProperty(_RUN)
        if not query_id or not run_id:
            raise QuorateError(
                f"Spark does not say whose task this is ({_QUERY}, {_RUN})",
                "use Spark 4.3, and no job groups",
            )
        staging = Staging(self._options.staging, self._options.name or query_id)
        chunks = encoded(iterator, self._columns, self._options)
        return Staged(query_id, run_id, staging.stage(run_id, chunks))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Append what the tasks staged, or finish what a former driver began."""
        owner = _owner(messages)
        if owner is None:
            return
        name = self._options.name or owner[0]
        work = commit(self._options, name, owner, batchId, _files(messages), commit_type=self.commit_type)
        asyncio.run(work)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what the tasks staged, unless a commit may still need it."""
        owner = _owner(messages)
        if owner is not None:
            name = self._options.name or owner[0]
            asyncio.run(discard(self._options, name, owner[1], _files(messages)))


def _checked(options: Mapping[str, str], schema: StructType, *, stream: bool) -> SinkOptions:
    checked = read_options(options, stream=stream)
    check_columns(schema, checked.topic)
    try:
        Staging(checked.staging, "").prepare()
    except (OSError, ValueError) as error:
        remedy = "name a folder that the driver and all workers can write to"
        raise OptionError(STAGING, checked.staging, f"cannot be written to: {error}", remedy) from None
    try:
        _known_topic(checked)
    except OptionError:
        raise
    except QuorateError as error:
        raise OptionError(BOOTSTRAP, checked.bootstrap, error.message, error.remedy) from None
    return checked


def topic_shape(options: SinkOptions, topic: str) -> TopicShape:
    """Look a topic up."""

    async def look() -> TopicShape:
        async with options.brokers() as client:
            partitions = (await client.metadata([topic])).topics[topic].partitions
            if not partitions:
                raise OptionError(TOPIC, topic, "there is no such topic", "create it, or correct the name")
            rows = (await client.describe_topic_configs([topic]))[topic]
            sizes = {row.name: row.value for row in rows}
            return TopicShape(len(partitions), int(sizes["max.message.bytes"] or 0))

    return asyncio.run(look())


@lru_cache(maxsize=TOPICS_MAX)
def _known_topic(options: SinkOptions) -> None:
    """See that brokers answer and have a topic, if the query names one.

    Spark makes the driver's writer anew for every batch; what was there once is not looked up again.
    """

    async def look() -> None:
        async with options.brokers() as client:
            await client.metadata([])

    if options.topic is None:
        asyncio.run(look())
    else:
        topic_shape(options, options.topic)


def encoded(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], options: SinkOptions
) -> Iterator[Chunk]:
    """Yield the chunks of a task's rows."""
    context = TaskContext.get()
    encoder = Encoder(
        lambda topic: topic_shape(options, topic),
        codec=options.codec,
        first_partition=0 if context is None else context.partitionId(),
    )
    for batch in batches:
        for row in rows_of(batch, columns, options.topic):
            yield from encoder.add(row)
    yield from encoder.rest()


def rows_of(batch: pa.RecordBatch, columns: Sequence[str], topic: str | None) -> Iterator[SinkRow]:
    """Yield what the rows of a batch say; the option topic goes before the column."""

    def column(name: str) -> list[Any]:
        if name not in columns:
            return [None] * batch.num_rows
        found: list[Any] = batch.column(columns.index(name)).to_pylist()
        return found

    topics = column("topic") if topic is None else [topic] * batch.num_rows
    parts = (topics, column("partition"), column("key"), column("value"), column("headers"))
    for to, partition, key, value, headers in zip(*parts, strict=True):
        yield SinkRow(to, partition, _bytes(key), _bytes(value), headers)


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [each.file for each in messages if isinstance(each, Staged) and each.file is not None]


def _owner(messages: Sequence[WriterCommitMessage | None]) -> tuple[str, str] | None:
    """Return the query and the run whose tasks wrote; None: no task did."""
    for each in messages:
        if isinstance(each, Staged):
            return each.query_id, each.run_id
    return None


@contextlib.asynccontextmanager
async def _ledger(options: SinkOptions, name: str) -> AsyncIterator[tuple[BrokerClient, Ledger]]:
    async with (
        options.brokers() as brokers,
        options.quorum(await quorum_hosts(brokers, options)) as client,
    ):
        yield brokers, Ledger(client, name)


async def commit(
    options: SinkOptions,
    name: str,
    owner: tuple[str, str],
    batch_id: int,
    files: Sequence[StagedFile],
    *,
    commit_type: Callable[..., Commit] = Commit,
) -> None:
    """Commit a batch of a query's run (`owner`) under a name."""
    query_id, run_id = owner
    async with _ledger(options, name) as (brokers, ledger):
        staging = Staging(options.staging, name)
        await commit_type(
            brokers, ledger, staging, query_id=query_id, run_id=run_id, batch_id=batch_id, files=files
        ).run()


async def discard(options: SinkOptions, name: str, run_id: str, files: Sequence[StagedFile]) -> None:
    """Remove what a run's tasks staged, unless the quorum names it and it is not done."""
    async with _ledger(options, name) as (_, ledger):
        if not await still_needed(ledger, run_id):
            Staging(options.staging, name).remove(each.path for each in files)
