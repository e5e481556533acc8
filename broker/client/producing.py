"""Appends with a producer id, an epoch and sequence numbers of the caller, so that each can be repeated.

Client libraries draw these numbers themselves and forget them with their process. Here they come from the
caller, which keeps them: the same chunks under the same `ProducerLife` are in a partition once, no matter how
often and by how many processes they are sent. A chunk's sequence number is the number of records that stand
before it in its partition. The broker takes it only after its predecessor; a repeat of one of the last five
is answered as the first time, an older one is out of order, and one of an older epoch is fenced.
`appended` reads from the log how far an earlier process came.

The broker forgets a producer that wrote nothing for a day. Until then a process that was paused in the midst
of its appends can do no harm.
Source: KIP-98, KIP-360 (idempotent producers); Kafka's protocol guide, "Record Batch".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.client.client import RETRY_PAUSE_S, BrokerClient
from broker.client.errors import BrokerRequestError
from broker.client.partitions import batch_headers
from broker.log.batches import HEADER, MAGIC, BatchHeader
from controller.wire.codes import INDEFINITE, RETRIABLE, ErrorCode
from quorum.errors import Fault, QuorateError
from quorum.metadata.paths import PartitionKey

#: Chunks that were read and wait for their turn, in bytes.
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
#: How long no partition may take a chunk before the append gives up.
PATIENCE_S: Final = 120.0
#: The largest epoch of a producer id; then another id is needed.
PRODUCER_EPOCH_MAX: Final = 2**15 - 2
#: What the header adds to the records of a chunk.
HEADER_BYTES: Final = HEADER.size
_START: Final = -2
_CRC_FROM: Final = 21
_LENGTH_FROM: Final = 12


class ProducerLife(NamedTuple):
    """Who appends: a higher epoch of the same producer id fences the lower ones."""

    producer_id: int
    producer_epoch: int


class Chunk(NamedTuple):
    """Records of one partition, encoded, which become one batch."""

    key: PartitionKey
    records_count: int
    #: As they follow the header, compressed if the codec says so.
    records: bytes
    #: Kafka's number: 0 none, 1 gzip, 3 lz4, 4 zstd.
    codec: int = 0


class ProducerFencedError(QuorateError):
    """A later process appends under this producer id; nothing more was appended."""

    fault = Fault.CLIENT


class AppendStalledError(QuorateError):
    """A partition took nothing for too long; what was sent last may be in it."""

    fault = Fault.PEER
    definite = False
    retriable = True


def pack_batch(chunk: Chunk, life: ProducerLife, *, base_sequence: int, timestamp_ms: int) -> bytes:
    """Return a chunk as a record batch; all its records have the one timestamp."""
    head = BatchHeader(
        base_offset=0,
        batch_length=HEADER.size - _LENGTH_FROM + len(chunk.records),
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=chunk.codec,
        last_offset_delta=chunk.records_count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=life.producer_id,
        producer_epoch=life.producer_epoch,
        base_sequence=base_sequence,
        records_count=chunk.records_count,
    )
    checksum = crc32c(chunk.records, crc32c(HEADER.pack(*head)[_CRC_FROM:]))
    return HEADER.pack(*head._replace(crc=checksum)) + chunk.records


async def appended(
    client: BrokerClient, life: ProducerLife, since: Mapping[PartitionKey, int]
) -> dict[PartitionKey, int]:
    """Read how many records of a producer's life partitions hold, up to their high watermarks.

    Args:
        client: reads.
        life: the producer id and the epoch.
        since: {partition: an end offset from before its first append}.

    Raises:
        BrokerRequestError: a partition cannot be read.
    """
    counts = dict.fromkeys(since, 0)
    starts = await client.offsets(since, _START)
    ends = await client.offsets(since)
    # Retention may have moved the start, and an unclean election the end.
    left = {key: max(offset, starts[key]) for key, offset in since.items()}
    left = {key: offset for key, offset in left.items() if offset < ends[key]}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while left:
        if loop.time() >= deadline:
            names = ", ".join(f"{key.topic}-{key.partition}" for key in left)
            raise AppendStalledError(f"{names} could not be read within {PATIENCE_S:.0f} s", "try again")
        for key, fetched in (await client.fetch(left)).items():
            if fetched.error_code not in (*RETRIABLE, ErrorCode.NONE):
                raise BrokerRequestError(f"reading {key.topic}-{key.partition}", fetched.error_code)
            if fetched.next_offset >= 0:
                deadline = loop.time() + PATIENCE_S
                left[key] = fetched.next_offset
            for header in batch_headers(fetched.records):
                if (header.producer_id, header.producer_epoch) == life:
                    counts[key] = header.last_sequence + 1
        left = {key: offset for key, offset in left.items() if offset < ends[key]}
    return counts


class Appending:
    """Appends chunks, those of a partition in their order, each acknowledged by all in sync."""

    def __init__(
        self,
        client: BrokerClient,
        life: ProducerLife,
        chunks: Iterable[Chunk],
        *,
        since: Mapping[PartitionKey, int],
        counts: Mapping[PartitionKey, int],
        timestamp_ms: int,
    ) -> None:
        """Send nothing yet.

        Args:
            client: sends; a partition has one batch on the way.
            life: the producer id and the epoch.
            chunks: all chunks of this life from its first on, the same at every repetition.
            since: {partition: an end offset from before its first append}.
            counts: {partition: records of this life that it holds}; their chunks are left out.
            timestamp_ms: of every record.
        """
        self._client = client
        self._life = life
        self._chunks = iter(chunks)
        self._since = since
        self._counts = counts
        self._timestamp_ms = timestamp_ms
        #: {partition: records in all chunks that were read of it}
        self._read: dict[PartitionKey, int] = {}
        #: {partition: (first sequence number, chunk), in order}
        self._waiting: dict[PartitionKey, deque[tuple[int, Chunk]]] = {}
        self._waiting_bytes = 0

    async def run(self) -> None:
        """Append all.

        Raises:
            ProducerFencedError: a later epoch appends (definite for what was not sent yet).
            BrokerRequestError: a broker refuses for good.
            AppendStalledError: no progress; a repetition appends what is missing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            self._read_ahead()
            if not self._waiting:
                return
            if await self._round():
                deadline = loop.time() + PATIENCE_S
                continue
            if loop.time() >= deadline:
                names = ", ".join(f"{key.topic}-{key.partition}" for key in self._waiting)
                raise AppendStalledError(
                    f"{names} took nothing for {PATIENCE_S:.0f} s", "see that the brokers run, then try again"
                )
            await asyncio.sleep(RETRY_PAUSE_S)

    def _read_ahead(self) -> None:
        while self._waiting_bytes < WAITING_BYTES_MAX:
            chunk = next(self._chunks, None)
            if chunk is None:
                return
            first = self._read.get(chunk.key, 0)
            self._read[chunk.key] = first + chunk.records_count
            if self._read[chunk.key] <= self._counts.get(chunk.key, 0):
                continue
            self._waiting.setdefault(chunk.key, deque()).append((first, chunk))
            self._waiting_bytes += len(chunk.records)

    async def _round(self) -> bool:
        """Send the first chunk of every partition; returns whether one was taken."""
        batches = {
            key: pack_batch(chunk, self._life, base_sequence=first, timestamp_ms=self._timestamp_ms)
            for key, ((first, chunk), *_) in self._waiting.items()
        }
        progress = False
        late: list[PartitionKey] = []
        for key, produced in (await self._client.produce(batches)).items():
            code = produced.error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._take(key)
                progress = True
            elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
                raise ProducerFencedError(
                    f"{key.topic}-{key.partition} has a later epoch than {self._life.producer_epoch} of "
                    f"producer {self._life.producer_id}",
                    "leave the topic to the process that began later",
                )
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                late.append(key)
            elif code not in RETRIABLE and code not in INDEFINITE:
                raise BrokerRequestError(f"appending to {key.topic}-{key.partition}", code, produced.message)
        return await self._catch_up(late) or progress

    async def _catch_up(self, late: list[PartitionKey]) -> bool:
        """Leave out what another process appended meanwhile under the same numbers."""
        progress = False
        if late:
            counts = await appended(self._client, self._life, {key: self._since[key] for key in late})
            for key, count in counts.items():
                waiting = self._waiting[key]
                while waiting and waiting[0][0] + waiting[0][1].records_count <= count:
                    self._take(key)
                    progress = True
                    if key not in self._waiting:
                        break
        return progress

    def _take(self, key: PartitionKey) -> None:
        _, chunk = self._waiting[key].popleft()
        self._waiting_bytes -= len(chunk.records)
        if not self._waiting[key]:
            del self._waiting[key]
