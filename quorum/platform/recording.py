"""Records what happens to a state machine, so that a report of a fault can be replayed as a test.

A recording is a file of steps: when, what came in, what came out. Values are those that machines take and
give: numbers, text, bytes, collections, enums, dataclasses and named tuples of this project; a file names
their classes and nothing else, so reading one runs no code of it. When the room is used up all recordings
end; what they have stays good, since a machine's steps follow from its first one on.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import sys
import uuid
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack

from quorum.errors import Fault, QuorateError

#: What the files of a folder may have together.
BYTES_MAX: Final = 256 * 1024 * 1024
#: Packages whose classes a recording may name.
PACKAGES: Final = frozenset({"quorum", "controller", "broker"})

log = logging.getLogger("quorate.recording")

_OBJECT, _TUPLE, _SET, _UUID = 1, 2, 3, 4


class RecordingError(QuorateError):
    """A recording cannot be read, or not be begun."""

    fault = Fault.OPERATOR


class Step(NamedTuple):
    """One step of a machine."""

    now_ms: int
    #: What came in: an input, or a call as (name, arguments).
    given: object
    #: What came out.
    taken: object


class Recordings:
    """A folder with a file for each machine, and room for all of them together."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        """Make the folder."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"broker.record_dir {folder} cannot be made: {error.strerror}"
            raise RecordingError(problem, "name a folder that this user may write, or none") from error
        self._folder = folder
        self._bytes_left = bytes_max

    def begin(self, name: str) -> Recorder:
        """Begin the recording of a machine; a former one of that name stays.

        A disk that refuses ends all recordings.
        """
        for number in itertools.count():
            path = self._folder / (f"{name}.{number}.steps" if number else f"{name}.steps")
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            except OSError as error:
                self._end(str(error))
            return Recorder(self, path)
        raise AssertionError

    def close(self) -> None:
        """Record nothing more."""
        self._bytes_left = 0

    def write(self, path: Path, packed: bytes) -> None:
        """Add to a file, as long as there is room; a disk that refuses ends all recordings.

        No file stays open: a broker has thousands of machines, and logs and clients need open files, too.
        """
        if len(packed) > self._bytes_left:
            self._end("they are full")
            return
        self._bytes_left -= len(packed)
        try:
            with path.open("ab", buffering=0) as file:
                file.write(packed)
        except OSError as error:
            self._end(str(error))

    def _end(self, reason: str) -> None:
        if self._bytes_left:
            log.warning("the recordings in %s end: %s", self._folder, reason)
        self._bytes_left = 0


class Recorder:
    """Writes the steps of one machine."""

    def __init__(self, recordings: Recordings, path: Path) -> None:
        """Write to an empty file."""
        self._recordings = recordings
        self._path = path

    def note(self, now_ms: int, given: object, taken: object = None) -> None:
        """Add a step."""
        self._recordings.write(self._path, pack((now_ms, given, taken)))


def read_recording(path: Path) -> Iterator[Step]:
    """Yield the steps of a recording in order; a step that was cut at the end is left out."""
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, ext_hook=_unpacked, strict_map_key=False, max_buffer_size=BYTES_MAX)
        try:
            for fields in unpacker:
                yield Step(*fields)
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            raise RecordingError(
                f"{path}: {error}", "give a recording that this version has written"
            ) from error


def pack(value: object) -> bytes:
    """Return the bytes of a value."""
    packed: bytes = msgpack.packb(value, default=_packable, strict_types=True)
    return packed


def unpack(data: bytes) -> Any:
    """Return the value of what `pack` returned."""
    return msgpack.unpackb(data, ext_hook=_unpacked, strict_map_key=False)


def _packable(value: object) -> object:
    if isinstance(value, Enum):
        return _named(value, [value.value])
    if isinstance(value, uuid.UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return _named(value, list(value))
        return msgpack.ExtType(_TUPLE, pack(list(value)))
    if dataclasses.is_dataclass(value):
        return _named(value, [getattr(value, each.name) for each in dataclasses.fields(value) if each.init])
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return msgpack.ExtType(_SET, pack(sorted(value)))
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    raise TypeError(f"{type(value).__qualname__} is no value that a recording keeps")


def _named(value: object, fields: list[object]) -> msgpack.ExtType:
    kind = type(value)
    return msgpack.ExtType(_OBJECT, pack([kind.__module__, kind.__qualname__, *fields]))


def _unpacked(code: int, data: bytes) -> object:
    match code:
        case 1:
            module, name, *fields = unpack(data)
            return _class(module, name)(*fields)
        case 2:
            return tuple(unpack(data))
        case 3:
            return frozenset(unpack(data))
        case 4:
            return uuid.UUID(bytes=data)
    raise ValueError(f"{code} is no kind of value")


def _class(module: str, name: str) -> Any:
    # Nothing is imported because a file says so.
    is_ours = module.split(".", maxsplit=1)[0] in PACKAGES
    found = getattr(sys.modules.get(module), name, None) if is_ours else None
    is_value = isinstance(found, type) and (
        issubclass(found, Enum) or dataclasses.is_dataclass(found) or hasattr(found, "_fields")
    )
    if not is_value:
        raise ValueError(f"{module}.{name} is no class of values that is known here")
    return found
