"""Strict reading of the JSON values of metadata znodes.

Pure. Every refusal is a MetadataDecodeError that names the path, the field and the value, so that an operator
can go and look at the node. Strict means: the type of a field decides (a bool is not an integer), a missing
field is an error unless the format has it optional. Fields that the format does not know are left alone:
Kafka's own readers do so, and later versions add fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NoReturn, TypeGuard

from quorum.metadata.errors import MetadataDecodeError

VALUE_SHOWN_MAX: Final = 120

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class JsonFields:
    """The fields of one JSON object, read with their types."""

    def __init__(self, path: str, fields: Mapping[str, object], prefix: str = "") -> None:
        """Wrap the object at a path; prefix names the place inside the value."""
        self._path = path
        self._fields = fields
        self._prefix = prefix

    @classmethod
    def parse(cls, path: str, data: bytes | None) -> JsonFields:
        """Read the whole value of a znode as one JSON object.

        Raises:
            MetadataDecodeError: the value is null, no UTF-8, no JSON, or no object.
        """
        if data is None:
            raise MetadataDecodeError(path, "", "null", "a JSON object")
        try:
            value = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            # ValueError is also what a number of more than 4,300 digits raises.
            raise MetadataDecodeError(path, "", shown(data), "a JSON object in UTF-8") from None
        if not _is_object(value):
            raise MetadataDecodeError(path, "", shown(value), "a JSON object")
        return cls(path, value)

    def has(self, name: str) -> bool:
        """Say whether the field is present and not null."""
        return self._fields.get(name) is not None

    def integer(self, name: str, minimum: int, maximum: int = INT32_MAX) -> int:
        """Read an integer field within [minimum, maximum], both inclusive."""
        value = self._required(name)
        if not is_integer(value) or not minimum <= value <= maximum:
            self.refuse(name, f"an integer from {minimum} to {maximum}")
        return value

    def integer_or(self, name: str, default: int, minimum: int, maximum: int = INT32_MAX) -> int:
        """Read an integer field that may be missing."""
        return self.integer(name, minimum, maximum) if self.has(name) else default

    def boolean_or(self, name: str, default: bool) -> bool:
        """Read a field of true or false that may be missing."""
        value = self._fields.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def string(self, name: str) -> str:
        """Read a string field."""
        value = self._required(name)
        if not isinstance(value, str):
            self.refuse(name, "a string")
        return value

    def string_or_none(self, name: str) -> str | None:
        """Read a string field that may be missing or null."""
        return self.string(name) if self.has(name) else None

    def decimal_string(self, name: str) -> int:
        """Read a 64-bit number that the format keeps in a string."""
        value = self.string(name)
        if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdecimal():
            self.refuse(name, "a string of decimal digits")
        number = int(value) if len(value) <= 20 else INT64_MAX + 1
        if not -INT64_MAX <= number <= INT64_MAX:
            self.refuse(name, "a string of decimal digits, a 64-bit number")
        return number

    def strings(self, name: str) -> tuple[str, ...]:
        """Read a list of strings."""
        value = self._required(name)
        if not isinstance(value, list):
            self.refuse(name, "a list of strings")
        strings = tuple(item for item in value if isinstance(item, str))
        if len(strings) != len(value):
            self.refuse(name, "a list of strings")
        return strings

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """Read a list of so many integers from -1 to 2^63 - 1."""
        value = self._required(name)
        numbers = value if isinstance(value, list) else ()
        found = tuple(each for each in numbers if is_integer(each) and -1 <= each <= INT64_MAX)
        if len(found) != count or len(numbers) != count:
            self.refuse(name, f"a list of {count} integers")
        return found

    def broker_ids(self, name: str) -> tuple[int, ...]:
        """Read a list of broker ids without repetition, in its order."""
        value = self._required(name)
        ids = broker_id_list(value)
        if ids is None:
            self.refuse(name, "a list of different broker ids")
        return ids

    def objects(self, name: str) -> list[JsonFields]:
        """Read a list of objects."""
        value = self._required(name)
        if not isinstance(value, list):
            self.refuse(name, "a list of objects")
        found: list[JsonFields] = []
        for index, item in enumerate(value):
            if not _is_object(item):
                self.refuse(name, "a list of objects")
            found.append(JsonFields(self._path, item, f"{self._prefix}{name}[{index}]."))
        return found

    def nested(self, name: str) -> JsonFields:
        """Read a field that is an object itself."""
        value = self._required(name)
        if not _is_object(value):
            self.refuse(name, "an object")
        return JsonFields(self._path, value, f"{self._prefix}{name}.")

    def nested_or_empty(self, name: str) -> JsonFields:
        """Read an object field that may be missing or null."""
        if self.has(name):
            return self.nested(name)
        return JsonFields(self._path, {}, f"{self._prefix}{name}.")

    def names(self) -> list[str]:
        """Names of all fields, in the order of the value."""
        return list(self._fields)

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Raise the error that says what the named field holds and what it should hold."""
        value = shown(self._fields[name]) if name in self._fields else "missing"
        raise MetadataDecodeError(self._path, f"{self._prefix}{name}", value, wanted)

    def _required(self, name: str) -> object:
        if name not in self._fields:
            raise MetadataDecodeError(self._path, f"{self._prefix}{name}", "missing", "a value")
        return self._fields[name]


def decimal(path: str, data: bytes | None, minimum: int, maximum: int = INT32_MAX) -> int:
    """Read a whole value that is a plain decimal number, such as /controller_epoch.

    Raises:
        MetadataDecodeError: it is anything else, or outside [minimum, maximum].
    """
    wanted = f"a decimal number from {minimum} to {maximum}"
    text = data.decode("utf-8", "replace") if data is not None else ""
    if not (text.isascii() and text.isdecimal()) or len(text) > 20:
        raise MetadataDecodeError(path, "", shown(data), wanted)
    number = int(text)
    if not minimum <= number <= maximum:
        raise MetadataDecodeError(path, "", shown(data), wanted)
    return number


def is_integer(value: object) -> TypeGuard[int]:
    """Say whether a JSON value is an integer (true and false are not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def broker_id_list(value: object) -> tuple[int, ...] | None:
    """Return a JSON value as a tuple of different broker ids (0 to 2^31 - 1), or None if it is none."""
    if not isinstance(value, list):
        return None
    ids = tuple(item for item in value if is_integer(item) and 0 <= item <= INT32_MAX)
    if len(ids) != len(value) or len(dict.fromkeys(ids)) != len(ids):
        return None
    return ids


def shown(value: object) -> str:
    """Show a value in an error, cut to VALUE_SHOWN_MAX characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else json.dumps(value)
    return text if len(text) <= VALUE_SHOWN_MAX else text[:VALUE_SHOWN_MAX] + "…"


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    # JSON objects have string keys only.
    return isinstance(value, dict)
