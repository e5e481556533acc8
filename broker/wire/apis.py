"""The requests that each listener serves, their versions, and how large each may be.

What is advertised is what is served, with one exception: Produce is advertised from 0, because librdkafka
concludes from Produce 0 that a broker knows gzip and snappy. Versions 0 to 2 close the connection, as in
Kafka 4. What a request does is decided by its handler.

A frame's largest size is that of what such a request carries: only Produce carries records. The setting
limits.frame_bytes_max bounds all of them.
Source: control-plane design, "API versions"; Kafka's protocol guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """The number of a request on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


#: of a request about one thing, or about the names of some
_FRAME_BYTES: Final = 1024 * 1024
#: of a request about all partitions of a large cluster, about settings, or with what members send each other
_LONG_FRAME_BYTES: Final = 8 * 1024 * 1024
#: of any frame of a peer that has something to prove first
UNPROVEN_FRAME_BYTES_MAX: Final = 8 * 1024


class Versions(NamedTuple):
    """The versions of one request, both inclusive, and its size."""

    served_min: int
    served_max: int
    advertised_min: int
    #: the largest frame, without its length; None: as the setting allows
    frame_bytes_max: int | None


def _served(
    low: int, high: int, advertised_min: int | None = None, frame_bytes_max: int | None = _FRAME_BYTES
) -> Versions:
    return Versions(low, high, low if advertised_min is None else advertised_min, frame_bytes_max)


def _long(low: int, high: int) -> Versions:
    return _served(low, high, frame_bytes_max=_LONG_FRAME_BYTES)


#: The listener of Kafka's clients: {api key: versions}
CLIENT_APIS: Final[Mapping[int, Versions]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _served(3, 10, advertised_min=0, frame_bytes_max=None),
        ApiKey.FETCH: _long(4, 16),
        ApiKey.LIST_OFFSETS: _long(1, 7),
        ApiKey.METADATA: _long(0, 12),
        ApiKey.OFFSET_COMMIT: _long(2, 9),
        ApiKey.OFFSET_FETCH: _long(1, 9),
        ApiKey.FIND_COORDINATOR: _served(0, 4),
        ApiKey.JOIN_GROUP: _long(0, 9),
        ApiKey.HEARTBEAT: _served(0, 4),
        ApiKey.LEAVE_GROUP: _served(0, 5),
        ApiKey.SYNC_GROUP: _long(0, 5),
        ApiKey.DESCRIBE_GROUPS: _served(0, 6),
        ApiKey.LIST_GROUPS: _served(0, 5),
        ApiKey.API_VERSIONS: _served(0, 4),
        ApiKey.CREATE_TOPICS: _long(2, 7),
        ApiKey.DELETE_TOPICS: _served(1, 6),
        ApiKey.INIT_PRODUCER_ID: _served(0, 4),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _served(2, 4),
        ApiKey.DESCRIBE_ACLS: _served(1, 3),
        ApiKey.CREATE_ACLS: _served(1, 3),
        ApiKey.DELETE_ACLS: _served(1, 3),
        ApiKey.DESCRIBE_CONFIGS: _long(1, 4),
        ApiKey.CREATE_PARTITIONS: _served(0, 3),
        ApiKey.DELETE_GROUPS: _served(0, 2),
        ApiKey.ELECT_LEADERS: _long(0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _long(0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _long(0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _long(0, 0),
        ApiKey.OFFSET_DELETE: _served(0, 0),
        ApiKey.DESCRIBE_CLUSTER: _served(0, 1),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _served(0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _served(0, 0),
    }
)

#: The listener of the controller and of followers: {api key: versions}
BROKER_APIS: Final[Mapping[int, Versions]] = MappingProxyType(
    {
        ApiKey.FETCH: _long(4, 16),
        ApiKey.LEADER_AND_ISR: _long(6, 6),
        ApiKey.STOP_REPLICA: _long(3, 3),
        ApiKey.UPDATE_METADATA: _long(7, 7),
        ApiKey.CONTROLLED_SHUTDOWN: _long(3, 3),
        ApiKey.SASL_HANDSHAKE: _served(1, 1),
        ApiKey.API_VERSIONS: _served(0, 4),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _served(2, 4),
        ApiKey.SASL_AUTHENTICATE: _served(2, 2),
    }
)


def advertised(apis: Mapping[int, Versions]) -> list[dict[str, object]]:
    """Return the rows of an ApiVersions response."""
    return [
        {"api_key": int(key), "min_version": row.advertised_min, "max_version": row.served_max}
        for key, row in sorted(apis.items())
    ]
