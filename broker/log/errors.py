"""What a log or a log directory refuses, each case a class of its own.

Errors of a log carry Kafka's code, so that the edge answers without a second table. A LogStorageError is
the disk's: the broker stops then, because what it has acknowledged may not be there. Damage that a read meets
costs its replica alone.
Source: controller.wire.codes; ARCHITECTURE.md, "Life of a record".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from controller.wire.codes import ErrorCode
from quorum.errors import DataDirError, Fault, QuorateError, remedy_for_os, told_by_os


class LogError(QuorateError):
    """The base of what one partition's log raises.

    Attributes:
        error_code: Kafka's number for it.
    """

    error_code: ErrorCode


class AppendError(LogError):
    """Records that were not appended; the log is as it was before."""

    fault = Fault.CLIENT

    def __init__(
        self, error_code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        #: (number in the batch, what is wrong) of the first records that are to blame
        self.record_errors = record_errors


def fenced(producer_id: int, producer_epoch: int, newer_epoch: int) -> AppendError:
    """Return the refusal of a producer whose id has a later epoch already."""
    problem = (
        f"producer {producer_id} with epoch {producer_epoch}: a newer producer has taken the id, "
        f"with epoch {newer_epoch}"
    )
    return AppendError(ErrorCode.INVALID_PRODUCER_EPOCH, problem)


class OffsetOutOfRangeError(LogError):
    """A read before the log's start or behind its end."""

    fault = Fault.CLIENT
    error_code: ClassVar[ErrorCode] = ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[misc]  # fixed for this class


class UnreadableBatchError(LogError):
    """A stored batch whose records cannot be opened although its checksum is right."""

    fault = Fault.CLIENT
    error_code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE  # type: ignore[misc]  # fixed for this class


class LogStorageError(LogError):
    """The disk refused, or holds what it cannot hold. The broker stops: all its logs are on this disk."""

    fault = Fault.NODE
    definite = False
    error_code: ClassVar[ErrorCode] = ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[misc]  # fixed for this class

    @classmethod
    def of(cls, error: OSError, doing: str) -> LogStorageError:
        """Map an error of the operating system."""
        return cls(told_by_os(error, doing), remedy_for_os(error))


class DamagedSegmentError(LogStorageError):
    """A segment holds bytes that no broker wrote.

    Attributes:
        stem: path of its files, without their suffixes.
        position: of the first batch that is not whole, in bytes.
    """

    stem: str = ""
    position: int = 0

    @property
    def folder(self) -> str:
        """Path of the log's folder."""
        return self.stem.rpartition("/")[0]


class ForeignLogDirectoryError(DataDirError):
    """A log directory of another broker or another cluster, or one that no broker formatted."""


class DamagedLogDirectoryError(DataDirError):
    """A log directory whose own files say something that no broker wrote."""

    fault = Fault.NODE
