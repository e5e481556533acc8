"""Reading and writing the bodies of requests and responses of every version, by kio's schema and our own.

Values of a message are plain mappings, named as in the newest version of Kafka's schema. Each version writes
the fields that it has and drops the others; a field that is not given gets the schema's default. Milliseconds
are ints, also where kio has a timedelta. Reading gives kio's entities. A response that may be long is written
in steps.
Source: Kafka's message definitions (clients/src/main/resources/common/message), as kio generated them.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import GeneratorType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_writer
from kio.serial.writers import write_compact_array_length, write_legacy_array_length
from kio.static.primitive import i32

from broker.wire.early_entities import EARLY_REQUESTS, EARLY_RESPONSES
from controller.messages.entities import CONTROL_VERSIONS
from controller.messages.entities import decode_request as decode_control_request
from controller.wire.codes import ErrorCode
from controller.wire.decoding import decode

#: The value of a message or of a part of it: field → value.
Values = Mapping[str, Any]
#: items of the arrays of a client's request together; what each costs holds the loop
REQUEST_ITEMS_MAX: Final = 20_000
#: rows of an array that are written in one step
STEP_ROWS_MAX: Final = 100
_MILLISECOND: Final = timedelta(milliseconds=1)
_Builder = Callable[[Values], Any]


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version has tagged fields, in its bodies and headers; False where it is not known."""
    if api_key in CONTROL_VERSIONS:
        return True
    try:
        return request_type(api_key, api_version).__flexible__ is True
    except KioIndexError:
        return False


def decode_request(
    api_key: int,
    api_version: int,
    body: bytes | memoryview,
    *,
    items_max: int = REQUEST_ITEMS_MAX,
    records: list[memoryview | None] | None = None,
) -> Any:
    """Read the body of a request.

    Args:
        api_key: of the request's header.
        api_version: of the request's header.
        body: what follows the header.
        items_max: of all its arrays together; eight plain numbers count as one.
        records: takes record batches; see controller.wire.decoding.decode.
    """
    if api_key in CONTROL_VERSIONS:
        return decode_control_request(api_key, api_version, body)
    return decode(request_type(api_key, api_version), body, items_max=items_max, records=records)


def decode_response(api_key: int, api_version: int, body: bytes | memoryview) -> Any:
    """Read the body of a response."""
    return decode(response_type(api_key, api_version), body)


def encode_request(api_key: int, api_version: int, values: Values) -> bytes:
    """Write the body of a request."""
    return _encode(request_type(api_key, api_version), values)


def encode_response(api_key: int, api_version: int, values: Values) -> bytes:
    """Write the body of a response."""
    return _encode(response_type(api_key, api_version), values)


class LongResponse:
    """The body of a response that is written in steps, so that others get their turn between them.

    An array may be given as a generator, which makes its rows as they are written: what is large is nowhere
    whole but in its bytes. Its rows may also be bytes, as they are written.
    """

    def __init__(self, api_key: int, api_version: int, values: Values) -> None:
        """Begin with nothing written; see `steps`."""
        self._kind = response_type(api_key, api_version)
        self._values = values
        #: written so far
        self.size_bytes = 0
        #: the body, once all steps are taken
        self.parts: list[bytes | memoryview] = []

    def steps(self) -> Iterator[None]:
        """Write the body; each step takes a few rows."""
        body = bytearray()
        yield from self._write(self._kind, self._values, body)
        self.parts.append(bytes(body))

    def _write(self, kind: Any, values: Values, out: bytearray) -> Iterator[None]:
        name = _long_array(values)
        if name is None:
            written = _encode(kind, values)
            out += written
            self.size_bytes += len(written)
            yield
            return
        head, tail = _around(kind, values, name)
        rows, count = bytearray(), 0
        for row in values[name]:
            count += 1
            if type(row) is bytes:
                rows += row
                self.size_bytes += len(row)
                yield
                continue
            yield from self._write(row_kind(kind, name), row, rows)
        self.size_bytes += len(head) + len(tail)
        out += head + _array_length(kind, count)
        out += rows
        out += tail


def is_long(values: Values) -> bool:
    """Tell whether a response is to be written in steps."""
    return _long_array(values) is not None


def milliseconds(duration: timedelta) -> int:
    """Return a duration that was read as whole milliseconds."""
    return duration // _MILLISECOND


@cache
def request_type(api_key: int, api_version: int) -> type[Any]:
    """Return the entity of a request's body."""
    return EARLY_REQUESTS.get((api_key, api_version)) or load_request_schema(api_key, api_version)


@cache
def response_type(api_key: int, api_version: int) -> type[Any]:
    """Return the entity of a response's body."""
    return EARLY_RESPONSES.get((api_key, api_version)) or load_response_schema(api_key, api_version)


def _long_array(values: Values) -> str | None:
    """Return which array is to be written row by row: one that is made as it is written, or is long."""
    for name, value in values.items():
        if type(value) is GeneratorType:
            return name
    for name, value in values.items():
        if (
            type(value) is list
            and value
            and isinstance(value[0], Mapping)
            and (len(value) > STEP_ROWS_MAX or any(_long_array(row) is not None for row in value))
        ):
            return name
    return None


def _around(kind: Any, values: Values, name: str) -> tuple[bytes, bytes]:
    """Return what stands before the length of an array and behind its rows."""
    buffer = io.BytesIO()
    place = _Place(buffer)
    entity = _builder(kind)({**values, name: ()})
    _writer(kind)(buffer, dataclasses.replace(entity, **{name: place}))
    written = buffer.getvalue()
    return written[: place.position - len(_array_length(kind, 0))], written[place.position :]


class _Place:
    """An array without rows that notes where they would be written."""

    def __init__(self, buffer: io.BytesIO) -> None:
        self._buffer = buffer
        self.position = 0

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        self.position = self._buffer.tell()
        return iter(())


def _array_length(kind: Any, count: int) -> bytes:
    buffer = io.BytesIO()
    if kind.__flexible__:
        write_compact_array_length(buffer, i32(count))
    else:
        write_legacy_array_length(buffer, i32(count))
    return buffer.getvalue()


@cache
def row_kind(kind: Any, name: str) -> Any:
    """Return the type of the rows of an array."""
    (annotation,) = (field.type for field in dataclasses.fields(kind) if field.name == name)
    (array,) = (each for each in members(annotation) if get_origin(each) is tuple)
    return get_args(array)[0]


def _encode(kind: Any, values: Values) -> bytes:
    buffer = io.BytesIO()
    _writer(kind)(buffer, _builder(kind)(values))
    return buffer.getvalue()


@cache
def _writer(kind: Any) -> Callable[[io.BytesIO, Any], None]:
    return entity_writer(kind)


@cache
def _builder(kind: Any) -> _Builder:
    """Return what turns values into an entity of one type."""
    rows = [(field.name, *_conversion(field)) for field in dataclasses.fields(kind)]

    def build(values: Values) -> Any:
        given: dict[str, Any] = {}
        for name, convert, default in rows:
            if name in values:
                value = values[name]
                given[name] = value if convert is None or value is None else convert(value)
            elif default is not dataclasses.MISSING:
                given[name] = default
            else:
                raise KeyError(f"{kind.__name__}.{name} has no value")
        return kind(**given)

    return build


def _conversion(field: dataclasses.Field[Any]) -> tuple[Callable[[Any], Any] | None, Any]:
    """Return how a field's value is converted, and its default."""
    kind = field.metadata.get("kafka_type")
    default = field.default
    if kind in ("timedelta_i32", "timedelta_i64"):
        return _duration, timedelta() if default is dataclasses.MISSING else default
    if kind == "datetime_i64":
        return _instant, default
    if kind == "error_code":
        return ErrorCode, default
    inner = [each for each in members(field.type) if each is not type(None)]
    if kind is None and len(inner) == 1:
        if get_origin(inner[0]) is tuple:
            build = _builder(get_args(inner[0])[0])
            return (lambda values: tuple([build(each) for each in values])), default
        return _builder(inner[0]), default
    if kind is not None and any(get_origin(each) is tuple for each in inner):
        return tuple, default
    return None, default


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the types that a field may have."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _instant(milliseconds: int) -> datetime | None:
    return None if milliseconds < 0 else datetime.fromtimestamp(milliseconds / 1000, UTC)
