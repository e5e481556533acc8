"""Staged files: what tasks leave below the checkpoint for the driver, in Arrow's file format.

A file holds chunks: topic, partition, number of records, codec and the encoded records. The list of a batch's
files is a file, too, so what the quorum keeps stays small. Each is named with its SHA-256, which is compared
before the first record is appended. Folder: STAGING/NAME/RUN/…; every start of a query is a run.
Knows neither brokers nor the quorum. Source: Arrow IPC file format.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from broker.client.producing import Chunk
from pipeline.sink.errors import StagedFileError
from quorum.errors import shown
from quorum.metadata.paths import PartitionKey

_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("records_count", pa.int32(), nullable=False),
        pa.field("codec", pa.int8(), nullable=False),
        pa.field("records", pa.binary(), nullable=False),
    ]
)
_READ_BYTES: Final = 1024 * 1024
#: Folders above a file that may be new: the run's, the name's, and the one that holds both.
_FOLDERS: Final = 3
_GONE: Final = (
    "stage on a file system that the driver and all workers share (stagingLocation), and keep its files "
    "until their batch is done"
)


class StagedFile(NamedTuple):
    """One file of chunks."""

    path: str
    sha256: str
    rows: int
    #: Rising.
    partitions: tuple[PartitionKey, ...]


class Manifest(NamedTuple):
    """All files of a batch, in the order of their rows, and where the partitions ended before it."""

    files: tuple[StagedFile, ...]
    #: {partition: end offset}
    since: dict[PartitionKey, int]

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return sum(each.rows for each in self.files)


class Staging:
    """The staged files of one name."""

    def __init__(self, location: str, name: str) -> None:
        """Find the file system.

        Args:
            location: a URI, or a path of this machine.
            name: whose files.
        """
        self._files, base = _file_system(location)
        self._base = f"{base.rstrip('/')}/{name}"

    def prepare(self) -> None:
        """Make the folder, so that a place which cannot be written to is known before tasks run."""
        self._files.create_dir(self._base, recursive=True)

    def stage(self, run_id: str, chunks: Iterable[Chunk]) -> StagedFile | None:
        """Write the chunks of a task to a file of its own; None: there are none."""
        path = f"{self._base}/{run_id}/{uuid.uuid4().hex}.arrow"
        rows = 0
        partitions: set[PartitionKey] = set()
        out: _Out | None = None
        for chunk in chunks:
            if out is None:
                out = _Out(self._files, path)
                writer = pa.ipc.new_file(out, _SCHEMA)
            writer.write_batch(_row(chunk))
            rows += chunk.records_count
            partitions.add(chunk.key)
        if out is None:
            return None
        writer.close()
        return StagedFile(path, out.finish(), rows, tuple(sorted(partitions)))

    def write_manifest(self, run_id: str, batch_id: int, manifest: Manifest) -> tuple[str, str]:
        """Write the list of a batch's files; returns its path and its SHA-256."""
        path = f"{self._base}/{run_id}/batch-{batch_id}-{uuid.uuid4().hex}.json"
        out = _Out(self._files, path)
        content = {
            "files": [
                {"path": each.path, "sha256": each.sha256, "rows": each.rows, "partitions": each.partitions}
                for each in manifest.files
            ],
            "since": [[key.topic, key.partition, offset] for key, offset in sorted(manifest.since.items())],
        }
        out.write(json.dumps(content).encode())
        return path, out.finish()

    def read_manifest(self, path: str, sha256: str) -> Manifest:
        """Read a list of files."""
        self.verify(path, sha256)
        with self._files.open_input_stream(path) as stream:
            content: Any = json.loads(stream.read())
        files = tuple(
            StagedFile(
                each["path"],
                each["sha256"],
                each["rows"],
                tuple(PartitionKey(*key) for key in each["partitions"]),
            )
            for each in content["files"]
        )
        return Manifest(
            files, {PartitionKey(topic, index): offset for topic, index, offset in content["since"]}
        )

    def verify(self, path: str, sha256: str) -> None:
        """Compare a file with the digest of what was written."""
        digest = hashlib.sha256()
        with self._open(path) as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
        if digest.hexdigest() != sha256:
            raise StagedFileError(f"the staged file {shown(path)} is not what was written there", _GONE)

    def chunks(self, files: Sequence[StagedFile]) -> Iterator[Chunk]:
        """Yield the chunks of files, in order."""
        for each in files:
            with self._open(each.path) as source:
                reader = pa.ipc.open_file(source)
                for index in range(reader.num_record_batches):
                    yield _chunk(reader.get_batch(index))

    def _open(self, path: str) -> pa.NativeFile:
        try:
            return self._files.open_input_file(path)
        except OSError as error:
            raise StagedFileError(f"the staged file {shown(path)} cannot be read: {error}", _GONE) from error

    def runs(self) -> list[str]:
        """Return the runs that have a folder."""
        found = self._files.get_file_info(fs.FileSelector(self._base, allow_not_found=True))
        return sorted(each.base_name for each in found if each.type == fs.FileType.Directory)

    def remove_run(self, run_id: str) -> None:
        """Remove everything that a run staged."""
        self._remove_folder(f"{self._base}/{run_id}")

    def remove_all(self) -> None:
        """Remove everything that was staged under the name."""
        self._remove_folder(self._base)

    def _remove_folder(self, path: str) -> None:
        if self._files.get_file_info(path).type == fs.FileType.Directory:
            self._files.delete_dir(path)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files that may be gone already."""
        for path in paths:
            if self._files.get_file_info(path).type == fs.FileType.File:
                self._files.delete_file(path)


class _Out:
    """A file that is being written, and the digest of what was; durable once it is finished."""

    closed = False

    def __init__(self, files: fs.FileSystem, path: str) -> None:
        self._files = files
        self._path = path
        files.create_dir(path.rpartition("/")[0], recursive=True)
        self._stream = files.open_output_stream(path)
        self._digest = hashlib.sha256()

    def write(self, content: Any) -> int:
        self._digest.update(content)
        return int(self._stream.write(content))

    def flush(self) -> None:
        self._stream.flush()

    def finish(self) -> str:
        """Close the file and return its SHA-256."""
        self._stream.close()
        if isinstance(self._files, fs.LocalFileSystem):
            # Other file systems are durable once a file is closed. The list of files comes to the quorum
            # after this.
            path = Path(self._path)
            for each in (path, *path.parents[:_FOLDERS]):
                descriptor = os.open(each, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        return self._digest.hexdigest()


def _row(chunk: Chunk) -> pa.RecordBatch:
    values = (chunk.key.topic, chunk.key.partition, chunk.records_count, chunk.codec, chunk.records)
    columns = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _chunk(batch: pa.RecordBatch) -> Chunk:
    topic, partition, count, codec, records = (column[0].as_py() for column in batch.columns)
    return Chunk(PartitionKey(topic, partition), count, records, codec)


def _file_system(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location and the path in it; Spark also writes file:/path."""
    if location.startswith("file:/") and not location.startswith("file://"):
        location = location.removeprefix("file:")
    if "://" in location:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(location)
        return found
    return fs.LocalFileSystem(), str(Path(location).absolute())
