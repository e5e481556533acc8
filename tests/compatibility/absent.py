"""Why the table of requests lacks requests and versions of Kafka: docs/reference/compatibility.md says it.

A test finds a gap of the table without a reason, and a reason without a gap.
Source: Kafka's message definitions (3.9 and 4.1), which say what each version brought.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from controller.wire.apis import ApiKey

_SECOND: Final = "The second part of KIP-890 is not announced."
_TOKENS: Final = "Delegation tokens are not built."
_KRAFT: Final = "KRaft only: here the metadata is in the quorum."
_TELEMETRY: Final = "Metrics of clients are not collected."
_SHARE: Final = "Share groups (KIP-932) are not built."
_STREAMS: Final = "Streams groups (KIP-1071) are not built."
_BETWEEN_BROKERS: Final = "Brokers of one release talk to each other: one version serves."
_RECORD_FORMATS: Final = "Record formats v0 and v1, which Kafka 4 has left out as well."

#: Requests that the table lacks: {number: reason}
REQUESTS_ABSENT: Final[Mapping[int, str]] = MappingProxyType(
    {
        **dict.fromkeys((38, 39, 40, 41), _TOKENS),
        **dict.fromkeys((52, 53, 54, 55, 59, 62, 63, 64, 70, 73, 80, 81, 82), _KRAFT),
        56: "A leader changes its ISR in the quorum itself.",
        57: "No feature has levels that could be changed.",
        58: "Brokers forward no requests: a client finds the controller.",
        67: "Brokers take blocks of producer ids from the quorum.",
        **dict.fromkeys((71, 72), _TELEMETRY),
        74: f"{_TELEMETRY} Version 1, which lists other resources, came with Kafka 4.1.",
        **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), _SHARE),
        **dict.fromkeys((88, 89), _STREAMS),
    }
)

#: Versions of Kafka 3.9 below those of the table: {request: reason}
VERSIONS_BELOW: Final[Mapping[ApiKey, str]] = MappingProxyType(
    {
        ApiKey.PRODUCE: f"{_RECORD_FORMATS} They are advertised because of librdkafka.",
        ApiKey.FETCH: _RECORD_FORMATS,
        ApiKey.LIST_OFFSETS: "0 lists the offsets of segments; Kafka 4 has left it out as well.",
        ApiKey.LEADER_AND_ISR: _BETWEEN_BROKERS,
        ApiKey.STOP_REPLICA: _BETWEEN_BROKERS,
        ApiKey.UPDATE_METADATA: _BETWEEN_BROKERS,
        ApiKey.CONTROLLED_SHUTDOWN: _BETWEEN_BROKERS,
        ApiKey.OFFSET_COMMIT: "0 means offsets in ZooKeeper; 1 has a time of its own for each partition.",
        ApiKey.OFFSET_FETCH: "0 means offsets in ZooKeeper.",
        ApiKey.WRITE_TXN_MARKERS: "Kafka 4 has left it out.",
        ApiKey.SASL_HANDSHAKE: "After 0 come messages without headers; clients that know 1 use that.",
        ApiKey.OFFSET_FOR_LEADER_EPOCH: "0 and 1 name no epoch of the asker, so a stale one goes unnoticed.",
        ApiKey.DESCRIBE_ACLS: "0 knows no patterns of names; Kafka 4 has left it out.",
        ApiKey.CREATE_ACLS: "0 knows no patterns of names; Kafka 4 has left it out.",
        ApiKey.DELETE_ACLS: "0 knows no patterns of names; Kafka 4 has left it out.",
        ApiKey.ALTER_REPLICA_LOG_DIRS: "Kafka 4 has left it out.",
        ApiKey.DESCRIBE_LOG_DIRS: "Kafka 4 has left it out.",
    }
)

#: Versions of Kafka 3.9 or 4.1 above those of the table: {request: reason}
VERSIONS_ABOVE: Final[Mapping[ApiKey, str]] = MappingProxyType(
    {
        ApiKey.PRODUCE: "11 and 12 are about transactions; 13 names topics by id.",
        ApiKey.FETCH: "18 brings what only followers of KRaft's controllers send.",
        ApiKey.LIST_OFFSETS: "10 waits for answers of tiered storage, which is not built.",
        ApiKey.METADATA: "13 tells clients to start again from their bootstrap brokers.",
        ApiKey.LEADER_AND_ISR: "7 is KRaft's, for the migration.",
        ApiKey.STOP_REPLICA: "4 is KRaft's, for the migration.",
        ApiKey.UPDATE_METADATA: "8 is KRaft's, for the migration.",
        ApiKey.ADD_PARTITIONS_TO_TXN: "4 and 5 are for brokers, on their own listener.",
        ApiKey.END_TXN: _SECOND,
        ApiKey.TXN_OFFSET_COMMIT: _SECOND,
        ApiKey.LIST_TRANSACTIONS: "2 filters by a regular expression of names.",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: "1 may forbid another number of replicas (KIP-860).",
        ApiKey.DESCRIBE_CLUSTER: "2 lists fenced brokers, which are KRaft's.",
    }
)
