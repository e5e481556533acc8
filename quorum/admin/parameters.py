"""Parameters of a query: declared once, checked by every request, and shown in the description of the API.

Decides what a well-formed query is; what a parameter means is its endpoint's. No state.

Source: OpenAPI 3.1, "Parameter Object".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.view import BadInputError
from quorum.errors import shown

_NUMBER: Final = re.compile("-?[0-9]{1,19}", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
#: of a text; percent-encoded, two of them are shorter than the line of a request may be
TEXT_CHARS_MAX: Final = 2000

Value: TypeAlias = "int | str | bool"


class Parameter(NamedTuple):
    """One parameter.

    Attributes:
        name: in the query.
        kind: int, str or bool.
        text: what it says, in a sentence.
        default: without it; None: it must be given.
        least: of a number, inclusive.
        most: of a number, inclusive; of a text, its length in characters.
        pattern: what a text must look like, as a whole.
    """

    name: str
    kind: type[int | str | bool]
    text: str
    default: Value | None = None
    least: int = 0
    most: int = (1 << 63) - 1
    pattern: str = ""

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of its value."""
        schema: dict[str, object] = {"type": {int: "integer", str: "string", bool: "boolean"}[self.kind]}
        if self.kind is int:
            schema |= {"minimum": self.least, "maximum": self.most}
        if self.kind is str:
            schema |= {"maxLength": min(self.most, TEXT_CHARS_MAX)}
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        if self.default is not None:
            schema["default"] = self.default
        return schema

    def read(self, given: str) -> Value:
        """Check a value."""
        problem = f"{self.name} = {shown(given)}"
        if self.kind is bool:
            if given not in _BOOLEANS:
                raise BadInputError(f"{problem} is not true or false", f"send {self.name}=true", self.name)
            return _BOOLEANS[given]
        if self.kind is int:
            if not _NUMBER.fullmatch(given) or not self.least <= int(given) <= self.most:
                wanted = f"a whole number from {self.least} to {self.most}"
                raise BadInputError(f"{problem} is not {wanted}", f"send {wanted}", self.name)
            return int(given)
        if len(given) > min(self.most, TEXT_CHARS_MAX) or (
            self.pattern and not _matches(self.pattern, given)
        ):
            remedy = f"send {self.name} as the description says: {self.text}"
            raise BadInputError(f"{problem} is not of that form", remedy, self.name)
        return given


def _matches(pattern: str, given: str) -> bool:
    return re.fullmatch(pattern, given, re.ASCII) is not None


def read_query(request: web.Request, parameters: Sequence[Parameter]) -> Mapping[str, Value]:
    """Read the query of a request.

    Returns:
        {name: value} of every parameter.
    """
    known = {parameter.name for parameter in parameters}
    example = f"send {', '.join(sorted(known))}" if known else "send no query"
    for name in request.query:
        if name not in known:
            raise BadInputError(f"the query has the unknown field {shown(name)}", example, name)
    values: dict[str, Value] = {}
    for parameter in parameters:
        given = request.query.getall(parameter.name, [])
        if len(given) > 1:
            problem = f"{parameter.name} is given {len(given)} times in the query, not once"
            raise BadInputError(problem, "send it once", parameter.name)
        if given:
            values[parameter.name] = parameter.read(given[0])
        elif parameter.default is not None:
            values[parameter.name] = parameter.default
        else:
            problem = f"the query lacks the field {parameter.name}"
            raise BadInputError(problem, f"send {parameter.name}: {parameter.text}", parameter.name)
    return values
