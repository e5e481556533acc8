"""What a request says: queries and bodies, declared once as NamedTuples and read by their fields.

Decides what is well-formed, and refuses everything else with the field, the value and what to send; what a
value means is its endpoint's. No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from aiohttp import web

from quorum.admin.view import BadInputError
from quorum.errors import shown

Schema: TypeAlias = Mapping[str, object]

#: without zeros in front: each number has one text
_NUMBER: Final = re.compile("0|-?[1-9][0-9]{0,18}", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
#: of a text; percent-encoded, two of them are shorter than the line of a request may be
TEXT_CHARS_MAX: Final = 2000
_INT64_MAX: Final = (1 << 63) - 1
_NEEDED: Final = object()


class Says(NamedTuple):
    """What a value says, and its bounds.

    Attributes:
        text: what it says, in a sentence.
        least: of a number or of a list's length, inclusive.
        most: of a number, of a list's length, of a text's length in characters; inclusive.
        pattern: what a text must look like, as a whole.
    """

    text: str = ""
    least: int = 0
    most: int = _INT64_MAX
    pattern: str = ""


class Field(NamedTuple):
    """One field of a query or a body.

    Attributes:
        name: as it is sent.
        kind: int, str, bool, bytes (base64 or null), an Enum by its names in lower case, a Literal, or a list
            of NamedTuples that differ by the Literal of their first field.
        says: what it says.
        default: without it; None: it has no value then.
    """

    name: str
    kind: Any
    says: Says
    default: object = _NEEDED

    @classmethod
    def of(cls, name: str, hint: Any, default: object = _NEEDED) -> Field:
        """Return the field that an annotation declares."""
        says = Says()
        if get_origin(hint) is Annotated:
            hint, says = get_args(hint)
        if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
            hint = next(each for each in get_args(hint) if each is not NoneType)
        return cls(name, hint, says, default)

    @property
    def needed(self) -> bool:
        """Whether it must be given."""
        return self.default is _NEEDED

    def schema(self) -> Schema:
        """Return the JSON Schema of its value."""
        kind, says = self.kind, self.says
        schema: dict[str, object]
        if kind is bytes:
            schema = {"type": ["string", "null"], "contentEncoding": "base64"}
        elif kind is int:
            schema = {"type": "integer", "minimum": says.least, "maximum": says.most}
        elif kind is str:
            schema = {"type": "string", "maxLength": self._chars_max()}
        elif kind is bool:
            schema = {"type": "boolean"}
        elif get_origin(kind) is Literal:
            schema = {"const": get_args(kind)[0]}
        elif get_origin(kind) is list:
            rows = [body_schema(fields_of(row)) for row in _rows(kind).values()]
            schema = {
                "type": "array",
                "minItems": says.least,
                "maxItems": says.most,
                "items": {"oneOf": rows},
            }
        else:
            schema = {"enum": sorted(each.name.lower() for each in kind)}
        if says.pattern:
            schema["pattern"] = f"^(?:{says.pattern})$"
        if isinstance(self.default, int | str) and not isinstance(self.default, Enum):
            schema["default"] = self.default
        return schema

    def _chars_max(self) -> int:
        return TEXT_CHARS_MAX if self.says.most == _INT64_MAX else self.says.most

    def of_text(self, given: str) -> object:
        """Return what a text says, as JSON would have it; the text itself if it says nothing."""
        if self.kind is bool:
            return _BOOLEANS.get(given, given)
        return int(given) if self.kind is int and _NUMBER.fullmatch(given) else given

    def read(self, given: object, example: str = "") -> object:
        """Check a value as JSON has it.

        Args:
            given: the value.
            example: the remedy; "": the field says its own.
        """
        kind, says = self.kind, self.says
        wanted, fits = "of that form", False
        remedy = (
            f"send {self.name}: {says.text}" if says.text else f"send {self.name} as its description says"
        )
        if kind is int:
            wanted = f"a whole number from {says.least} to {says.most}"
            remedy = f"send {wanted}"
            fits = type(given) is int and says.least <= given <= says.most
        elif kind is bool:
            wanted, remedy = "true or false", f"send {self.name}=true"
            fits = isinstance(given, bool)
        elif kind is str:
            form = f"of the form {says.pattern}"
            wanted = form if says.pattern else f"a text of at most {self._chars_max()} characters"
            fits = (
                isinstance(given, str)
                and len(given) <= self._chars_max()
                and (not says.pattern or re.fullmatch(says.pattern, given, re.ASCII) is not None)
            )
        elif get_origin(kind) is Literal:
            value = get_args(kind)[0]
            wanted, fits = json.dumps(value), type(given) is type(value) and given == value
        elif get_origin(kind) is list:
            wanted = f"a list of {says.least} to {says.most} {self.name}"
            if isinstance(given, list) and says.least <= len(given) <= says.most:
                return [self._row(each, example) for each in given]
        elif kind is bytes:
            wanted = "base64"
            with contextlib.suppress(ValueError):
                if given is None or isinstance(given, str):
                    return None if given is None else base64.b64decode(given.encode("ascii"), validate=True)
        else:
            names = {each.name.lower(): each for each in kind}
            wanted = f"one of {', '.join(names)}"
            if isinstance(given, str) and given in names:
                return names[given]
        if fits:
            return given
        problem = f"{self.name} = {shown(given)} is not {wanted}"
        raise BadInputError(problem, example or remedy, self.name)

    def _row(self, given: object, example: str) -> object:
        """Read one item of a list by the kind that its first field names."""
        rows = _rows(self.kind)
        first = fields_of(next(iter(rows.values())))[0].name
        name = given.get(first) if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(name, str) or name not in rows:
            wanted = f"an object whose {first} is one of {', '.join(rows)}"
            problem = f"{shown(given)} in {self.name} is not {wanted}"
            raise BadInputError(problem, example, self.name)
        return rows[name](**read_object(f"{name} of {self.name}", given, fields_of(rows[name]), example))


def _rows(kind: Any) -> dict[str, Any]:
    """Return {value of the first field: NamedTuple} of a list's items."""
    return {get_args(fields_of(row)[0].kind)[0]: row for row in get_args(get_args(kind)[0])}


def fields_of(declared: Any) -> tuple[Field, ...]:
    """Return the fields that a NamedTuple declares."""
    defaults = declared._field_defaults
    hints = get_type_hints(declared, include_extras=True)
    return tuple(Field.of(name, hint, defaults.get(name, _NEEDED)) for name, hint in hints.items())


def body_schema(fields: tuple[Field, ...]) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    needed = [field.name for field in fields if field.needed]
    return {
        "type": "object",
        **({"properties": {field.name: field.schema() for field in fields}} if fields else {}),
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def read_query(request: web.Request, fields: tuple[Field, ...], example: str = "") -> dict[str, object]:
    """Read the query of a request; returns {name: value} of every field."""
    given: dict[str, object] = {}
    known = {field.name: field for field in fields}
    remedy = f"send {', '.join(sorted(known))}" if known else example or "send no query"
    for name in request.query:
        values = request.query.getall(name)
        if name not in known:
            raise BadInputError(f"the query has the unknown field {shown(name)}", remedy, name)
        if len(values) > 1:
            problem = f"{name} is given {len(values)} times in the query, not once"
            raise BadInputError(problem, "send it once", name)
        given[name] = known[name].of_text(values[0])
    return read_object("query", given, fields)


async def read_body(
    request: web.Request, fields: tuple[Field, ...], example: str, *, optional: bool, bytes_max: int
) -> dict[str, object]:
    """Read the body as a JSON object; returns {name: value} of every field.

    Args:
        request: with its body unread.
        fields: that the endpoint knows.
        example: the remedy, as "send {...}".
        optional: whether no body at all counts as an object without fields.
        bytes_max: of the body; 0: what the application takes.
    """
    body = await (request.clone(client_max_size=bytes_max) if bytes_max else request).read()
    try:
        given: object = json.loads(body) if body or not optional else {}
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"the body is not JSON: {shown(str(error))}", example) from error
    if not isinstance(given, dict):
        raise BadInputError(f"the body is {shown(given)}, not a JSON object", example)
    return read_object("body", given, fields, example)


def read_object(
    where: str, given: Mapping[str, object], fields: tuple[Field, ...], example: str = ""
) -> dict[str, object]:
    """Check the fields of an object; returns {name: value} of every field, its default if it is not given."""
    unknown = sorted(given.keys() - {field.name for field in fields})
    if unknown:
        raise BadInputError(f"the {where} has the unknown field {shown(unknown[0])}", example, unknown[0])
    values: dict[str, object] = {}
    for field in fields:
        if field.name in given:
            values[field.name] = field.read(given[field.name], example)
        elif not field.needed:
            values[field.name] = field.default
        else:
            remedy = example or f"send {field.name}: {field.says.text}"
            raise BadInputError(f"the {where} lacks the field {field.name}", remedy, field.name)
    return values
