"""One request of each kind that a coordinator of groups serves, and where its error code stands."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from controller.wire.apis import ApiKey

_COMMIT = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
_TOPIC_ID = uuid.UUID(int=7)
_TOPICS = [{"name": "t", "topic_id": _TOPIC_ID, "partition_indexes": (0,)}]
_PRODUCER = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0}

#: {request: values of every version}
GROUP_REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.OFFSET_COMMIT: {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "member_id": "",
        "retention_time": -1,
        "topics": [{"name": "t", "topic_id": _TOPIC_ID, "partitions": [_COMMIT]}],
    },
    ApiKey.OFFSET_FETCH: {
        "group_id": "g",
        "topics": _TOPICS,
        "groups": [{"group_id": "g", "topics": _TOPICS}],
    },
    ApiKey.JOIN_GROUP: {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    },
    ApiKey.HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": "m"},
    ApiKey.LEAVE_GROUP: {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]},
    ApiKey.SYNC_GROUP: {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": ()},
    ApiKey.DESCRIBE_GROUPS: {"groups": ("g",), "include_authorized_operations": False},
    ApiKey.LIST_GROUPS: {},
    ApiKey.DELETE_GROUPS: {"groups_names": ("g",)},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 1_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": ("g",), "include_authorized_operations": False},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "t", "partitions": (0,)}],
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {**_PRODUCER, "group_id": "g"},
    ApiKey.END_TXN: {**_PRODUCER, "committed": True},
    ApiKey.TXN_OFFSET_COMMIT: {
        **_PRODUCER,
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [_COMMIT]}],
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ("x",)},
    ApiKey.LIST_TRANSACTIONS: {"state_filters": (), "producer_id_filters": ()},
    ApiKey.OFFSET_DELETE: {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    },
}


#: {request: error code of its answer in a version}
ERROR_OF: dict[ApiKey, Callable[[Any, int], int]] = {
    ApiKey.OFFSET_COMMIT: lambda answer, _: answer.topics[0].partitions[0].error_code,
    ApiKey.OFFSET_FETCH: lambda answer, version: (
        answer.groups[0].error_code
        if version >= 8
        else (answer.error_code if version >= 2 else answer.topics[0].partitions[0].error_code)
    ),
    ApiKey.DESCRIBE_GROUPS: lambda answer, _: answer.groups[0].error_code,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda answer, _: answer.groups[0].error_code,
    ApiKey.DELETE_GROUPS: lambda answer, _: answer.results[0].error_code,
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda answer, _: (
        answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    ),
    ApiKey.TXN_OFFSET_COMMIT: lambda answer, _: answer.topics[0].partitions[0].error_code,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda answer, _: answer.transaction_states[0].error_code,
}


def error_code_of(api_key: ApiKey, version: int, answer: Any) -> int:
    """Return the error code of an answer to one of the requests."""
    read = ERROR_OF.get(api_key)
    return int(answer.error_code if read is None else read(answer, version))
