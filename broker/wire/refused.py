"""The values of a response, or of one row of it, that refuses what a request names.

Every error code is the given one. Names and numbers are those of the request; what the request does not have
is the schema's default, or says that there is nothing. A row with an error code has no rows below it.
Source: Kafka's message definitions, as kio generated them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final, get_origin

from broker.wire.codec import Values, members, row_kind
from controller.wire.codes import ErrorCode

#: {array of a response: names that it has in a request}
_ASKED_AS: Final = {
    "partitions": ("partitions", "partition_indexes"),
    "results_by_partition": ("partitions",),
    "partition_result": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "replica_election_results": ("topic_partitions",),
    "results": ("creations",),
    "filter_results": ("filters",),
}
#: as Kafka's Errors says them
_WORDS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
_NOTHING: Final[dict[str, object]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), -1),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), 0),
    "string": "",
    "bytes": b"",
    "bool": False,
}


def refused(kind: Any, asked: object, error_code: ErrorCode) -> Values:
    """Return values that refuse.

    Args:
        kind: kio's type of the response or of its row.
        asked: the request, or the item of it that the row is about: an entity, a name or a number.
        error_code: why.
    """
    fields = dataclasses.fields(kind)
    values: dict[str, object] = {}
    is_plain = isinstance(asked, int | str)
    has_code = False
    for field in fields:
        kafka_type = field.metadata.get("kafka_type")
        if kafka_type == "error_code":
            values[field.name] = error_code
            has_code = True
        elif field.name == "error_message" and error_code in _WORDS:
            values[field.name] = _WORDS[error_code]
        elif _is_array(field):
            values[field.name] = ()
        elif not is_plain and kafka_type is not None and hasattr(asked, field.name):
            values[field.name] = getattr(asked, field.name)
        elif field.default is dataclasses.MISSING:
            values[field.name] = _NOTHING.get(kafka_type or "")
    if is_plain:
        wanted = "string" if isinstance(asked, str) else "int32"
        name = next(
            each.name for each in fields if each.metadata.get("kafka_type") == wanted and each.name in values
        )
        values[name] = asked
    elif not has_code:
        for field in fields:
            if _is_array(field) and field.metadata.get("kafka_type") is None:
                below = row_kind(kind, field.name)
                values[field.name] = [refused(below, each, error_code) for each in _rows(asked, field.name)]
    return values


def _is_array(field: dataclasses.Field[Any]) -> bool:
    return any(get_origin(each) is tuple for each in members(field.type))


def _rows(asked: object, name: str) -> Iterable[object]:
    names = _ASKED_AS.get(name, (name,))
    return next((rows for each in names if (rows := getattr(asked, each, None)) is not None), ())
