"""What administrators ask of the controller by znodes below /admin: reassignments and preferred elections.

Pure. Both are one znode with a list of partitions, in Kafka's format; the controller removes what is done.
Source: kafka.zk.ReassignPartitionsZNode, PreferredReplicaElectionZNode (Kafka 3.9).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorum.metadata import paths
from quorum.metadata.decode import JsonFields
from quorum.metadata.paths import PartitionKey


@dataclass(frozen=True, slots=True)
class ReassignmentRecord:
    """The value of /admin/reassign_partitions, version 1."""

    #: {partition: replicas that it shall have}; of a partition that is named twice, the last ones.
    targets: Mapping[PartitionKey, tuple[int, ...]]

    def encode(self) -> bytes:
        """Return the JSON value."""
        rows = [
            {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
            for key, replicas in self.targets.items()
        ]
        return _json(rows)

    @classmethod
    def decode(cls, data: bytes | None) -> ReassignmentRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        rows = _rows(paths.REASSIGN_PARTITIONS, data)
        return cls({_key(row): row.broker_ids("replicas") for row in rows})


@dataclass(frozen=True, slots=True)
class PreferredElectionRecord:
    """The value of /admin/preferred_replica_election, version 1."""

    partitions: Sequence[PartitionKey]

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json([{"topic": key.topic, "partition": key.partition} for key in self.partitions])

    @classmethod
    def decode(cls, data: bytes | None) -> PreferredElectionRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        rows = _rows(paths.PREFERRED_REPLICA_ELECTION, data)
        return cls(tuple(dict.fromkeys(_key(row) for row in rows)))


def _rows(path: str, data: bytes | None) -> list[JsonFields]:
    fields = JsonFields.parse(path, data)
    fields.integer("version", 1, 1)
    return fields.objects("partitions")


def _key(row: JsonFields) -> PartitionKey:
    return PartitionKey(row.string("topic"), row.integer("partition", 0))


def _json(rows: Sequence[Mapping[str, object]]) -> bytes:
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":")).encode("ascii")
