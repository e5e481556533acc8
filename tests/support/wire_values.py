"""Values for every field of a request that its schema allows, with those that are wrong by their meaning.

Names, groups and ids of things that exist are among them, so that a request gets past the first check.
Source: kio's schema; Kafka's protocol guide, "Protocol Primitive Types".
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final, get_args, get_origin

from hypothesis import strategies as st
from kio.static.protocol import Entity

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: what people and programs have sent in place of a name
_ODD_NAMES: Final = (
    "",
    ".",
    "..",
    "a b",
    "ü/\0",
    "x" * 249,
    "x" * 250,
    "y" * 32_767,
    "-1",
    "null",
    "__internal",
)
_ROWS_MAX: Final = 3


class WireValues:
    """Strategies for the entities of one cluster."""

    def __init__(
        self, names: Sequence[str], topic_ids: Sequence[uuid.UUID], texts: Sequence[str] = ()
    ) -> None:
        """Know what exists.

        Args:
            names: of topics, groups, members and brokers.
            topic_ids: of topics.
            texts: that a setting or a pattern may have.
        """
        self._names = (*names, *_ODD_NAMES, *texts)
        self._topic_ids = (*topic_ids, uuid.UUID(int=7))
        self._known: dict[type[Entity], st.SearchStrategy[Any]] = {}

    def of(self, entity_type: type[Entity]) -> st.SearchStrategy[Any]:
        """Return a strategy for one message, or a part of one."""
        found = self._known.get(entity_type)
        if found is None:
            parts = {each.name: self._value(each.type, each.metadata) for each in fields(entity_type)}
            found = self._known[entity_type] = st.builds(entity_type, **parts)
        return found

    def _value(self, annotation: Any, metadata: Any) -> st.SearchStrategy[Any]:
        kafka_type = metadata.get("kafka_type")
        arguments = get_args(annotation)
        if type(None) in arguments:
            inner = next(part for part in arguments if part is not type(None))
            value = self._value(inner, metadata)
            return value if "tag" in metadata else st.none() | value
        if get_origin(annotation) is tuple:
            return st.lists(self._value(arguments[0], metadata), max_size=_ROWS_MAX).map(tuple)
        return self.of(annotation) if kafka_type is None else self._primitive(kafka_type)

    def _primitive(self, kafka_type: str) -> st.SearchStrategy[Any]:
        if kafka_type in _BITS:
            most = 2 ** (_BITS[kafka_type] - 1) - 1
            return st.sampled_from((0, 1, 2, 3, -1, -2, -3, -4, most, -most - 1))
        match kafka_type:
            case "string":
                return st.sampled_from(self._names)
            case "bytes" | "records":
                return st.sampled_from((b"", b"\0", bytes(100), b"\0\0\0\0\0\1\0\4name"))
            case "uuid":
                return st.sampled_from((None, *self._topic_ids))
            case "bool":
                return st.booleans()
            case "float64":
                return st.sampled_from((0.0, 0.5, 1.0, -1.0, 1e300, math.inf, -math.inf, math.nan))
            case "timedelta_i32":
                return st.sampled_from((0, 1, -1, 1000, -(2**31), 2**31 - 1)).map(_duration)
            case "timedelta_i64":
                return st.sampled_from((0, -1, 2**53)).map(_duration)
        raise AssertionError(f"no value of {kafka_type}")


def _duration(milliseconds: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=milliseconds)
