"""A compacted segment takes the place of those that it was made of.

The cleaner leaves `.cleaned` files. They become `.swap`, durably: from then on a start goes on with them.
They get their names in one turn of the event loop, while `.swap` stays as a second name of the records; the
other segments' files go, durably, and `.swap` goes last. Whatever a crash leaves is the old segments or the
new one.

The list of aborted transactions is there with its segment, maybe empty, and is named before the records'
second name goes: a start finds the old list or the new one as it finds the records.
Source: Kafka's LogCleaner and LogLoader (3.9).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.aborted import ABORTED_SUFFIX
from broker.log.files import (
    INDEX_SUFFIXES,
    FilePool,
    disk_errors,
    names_in,
    remove_file,
    sync_folder,
)
from broker.log.segment import Segment, file_name

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
#: files of a new segment beside its records
BESIDE_LOG: Final = (*INDEX_SUFFIXES, ABORTED_SUFFIX)
_LINK: Final = ".log.link"


class Cleanable(NamedTuple):
    """What there is to compact of a log."""

    #: of the log
    version: int
    #: whose files are complete, from the oldest on
    segments: Sequence[Segment]
    #: (producer id, last offset) of the batches by which repeats are known
    remembered: Sequence[tuple[int, int]]
    #: (producer id, epoch) of the producers of which nothing but a marker is known
    fencing: Sequence[tuple[int, int]]


class CleanedSegment(NamedTuple):
    """What the cleaner made of some segments that follow one another."""

    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    #: of the segments that it was made of
    replaced: Sequence[int]
    #: whether its list of aborted transactions has any
    has_aborted: bool


def _rename(old: str, new: str) -> None:
    with disk_errors(old):
        Path(old).rename(new)


def stage(stem: str, next_offset: int) -> Iterator[None]:
    """Decide for the new segment, which ends at an offset, in a thread; durable at the end.

    Producers' snapshots before its end go: one that has a transaction open needs the marker, which may be
    gone now. That at the end of the closed segments stays.
    """
    folder = str(Path(stem).parent)
    for name in names_in(folder):
        if name.endswith(".snapshot") and name < file_name(next_offset):
            remove_file(f"{folder}/{name}")
    yield
    for suffix in BESIDE_LOG:
        _rename(f"{stem}{suffix}{CLEANED}", f"{stem}{suffix}{SWAP}")
    sync_folder(folder)
    yield
    _rename(f"{stem}.log{CLEANED}", f"{stem}.log{SWAP}")
    sync_folder(folder)


def unstage(stem: str) -> None:
    """Decide against it, in a thread: the log changed."""
    for suffix in (".log", *BESIDE_LOG):
        remove_file(f"{stem}{suffix}{SWAP}")


def put_in_place(files: FilePool, folder: str, cleaned: CleanedSegment) -> Segment:
    """Give the new segment its names, without waiting for the disk; the old ones are closed."""
    segment = Segment(files, folder, cleaned.base_offset)
    stem = segment.stem
    remove_file(stem + _LINK)
    with disk_errors(segment.log_path):
        os.link(f"{stem}.log{SWAP}", stem + _LINK)
    _rename(stem + _LINK, segment.log_path)
    for suffix in BESIDE_LOG:
        _rename(f"{stem}{suffix}{SWAP}", stem + suffix)
    segment.take_cleaned(
        cleaned.size, cleaned.next_offset, cleaned.max_timestamp, cleaned.max_timestamp_offset
    )
    return segment


def finish(segment: Segment, others: Sequence[Segment], *, has_aborted: bool) -> Iterator[None]:
    """Remove the files of the other segments, an empty list and the second name, in a thread."""
    folder = str(Path(segment.log_path).parent)
    sync_folder(folder)
    yield
    for each in others:
        each.remove()
        yield
    if not has_aborted:
        remove_file(segment.stem + ABORTED_SUFFIX)
    sync_folder(folder)
    yield
    remove_file(segment.log_path + SWAP)
    sync_folder(folder)


def finish_swaps(files: FilePool, folder: str) -> None:
    """Go on at a start with what a crash has left."""
    names = names_in(folder)
    for name in names:
        if name.endswith((CLEANED, _LINK)):
            remove_file(f"{folder}/{name}")
    for name in names:
        if name.endswith(f".log{SWAP}"):
            _finish_swap(files, folder, int(name.removesuffix(f".log{SWAP}")), names)
    for name in names:
        if name.endswith(SWAP):
            remove_file(f"{folder}/{name}")


def _finish_swap(files: FilePool, folder: str, base_offset: int, names: Sequence[str]) -> None:
    swapped = Segment(files, folder, base_offset)
    stem, path = swapped.stem, swapped.log_path
    swapped.log_path += SWAP
    with disk_errors(swapped.log_path):
        swapped.size = Path(swapped.log_path).stat().st_size
    end_offset = base_offset
    for _, header in swapped.walk(0):
        end_offset = header.last_offset + 1
    logs = [name for name in names if len(name) == len(file_name(0) + ".log") and name.endswith(".log")]
    for name in logs:
        base = int(name.removesuffix(".log"))
        if base_offset < base < end_offset:
            Segment(files, folder, base).remove()
    for suffix in INDEX_SUFFIXES:
        # Those of the old segment, maybe: they are made anew.
        remove_file(stem + suffix)
    if Path(stem + ABORTED_SUFFIX + SWAP).exists():
        _rename(stem + ABORTED_SUFFIX + SWAP, stem + ABORTED_SUFFIX)
    sync_folder(folder)
    _rename(path + SWAP, path)
    sync_folder(folder)
