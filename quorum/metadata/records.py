"""The typed records of the metadata quorum and their JSON formats, which are Kafka's own.

Pure: bytes in, frozen records out, and back. Decoding is strict (decode.py); encoding writes the newest
version of a format that Kafka 3.9 reads. Quorate adds fields to registrations (`incarnation`, `admin`,
`reads_queue`, `shortened`) and to states (`shortened`), and the nodes under /brokers/generations and
/brokers/incarnations; Kafka's readers ignore them. Which znode version, czxid or owner a record had is no
part of it.
Source: kafka.zk.*ZNode (Kafka 3.9); KIP-380; KIP-516 (topic ids).
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from quorum.metadata import paths
from quorum.metadata.decode import INT32_MAX, INT64_MAX, JsonFields, decimal
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch, TopicId
from quorum.metadata.paths import PartitionKey

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
#: leader_recovery_state: the leader came from the ISR, or by an unclean election.
RECOVERED: Final = 0
RECOVERING: Final = 1


class LogEnd(NamedTuple):
    """Where a log ends: of two logs that nothing else is known of, the larger one has more."""

    #: Of its last batch, -1 for none.
    leader_epoch: int
    #: Exclusive.
    offset: int


_NO_SHORTENED: Final[Mapping[str, Mapping[int, LogEnd]]] = MappingProxyType({})
_NO_TOPICS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_LOG_ENDS: Final[Mapping[int, LogEnd]] = MappingProxyType({})
_NO_REPLICAS: Final[Mapping[int, tuple[int, ...]]] = MappingProxyType({})
_NO_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ControllerRecord:
    """The value of /controller, version 2."""

    broker_id: int
    #: Wall clock of the election, milliseconds since 1970; informative only.
    timestamp_ms: int
    kraft_controller_epoch: int = -1

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_controller_epoch,
            }
        )

    @classmethod
    def decode(cls, data: bytes | None, path: str = paths.CONTROLLER) -> ControllerRecord:
        """Read version 1 (the seed's) or 2; brokerid -1 is legal here and means that nobody is the
        controller.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(path, data)
        fields.integer("version", 1, 2)
        return cls(
            broker_id=fields.integer("brokerid", NO_CONTROLLER),
            timestamp_ms=fields.decimal_string("timestamp"),
            kraft_controller_epoch=fields.integer_or("kraftControllerEpoch", -1, -1),
        )


def encode_controller_epoch(controller_epoch: int) -> bytes:
    """Return the value of /controller_epoch, or of the epoch of another office."""
    return b"%d" % controller_epoch


def decode_controller_epoch(data: bytes | None, path: str = paths.CONTROLLER_EPOCH) -> ControllerEpoch:
    """Read the value of /controller_epoch.

    Raises:
        MetadataDecodeError: it is not a decimal number from 0 to 2^31 - 2, after which there is one more.
    """
    return ControllerEpoch(decimal(path, data, 0, INT32_MAX - 1))


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """The value of /brokers/ids/N, version 5; the broker's generation is the czxid of the node."""

    #: Host and port of the PLAINTEXT endpoint; None and -1 when there is none.
    host: str | None
    port: int
    #: "LISTENER://host:port"
    endpoints: tuple[str, ...]
    #: {listener name: security protocol}
    listener_security_protocol_map: Mapping[str, str]
    #: Wall clock of the registration, milliseconds since 1970; informative only.
    timestamp_ms: int
    rack: str | None = None
    #: Identity of the broker's data directory, 32 hex digits; None in a registration of Kafka's.
    incarnation: str | None = None
    jmx_port: int = -1
    #: {feature: (min_version, max_version)}
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: _NO_FEATURES)
    #: URL of the broker's HTTP port; None in a registration of Kafka's.
    admin: str | None = None
    #: Whether it reads its queue, /brokers/state/N.
    reads_queue: bool = False
    #: {topic_label(): {partition: where the broker's log ends}} of logs that may lack acknowledged records.
    shortened: Mapping[str, Mapping[int, LogEnd]] = field(default_factory=lambda: _NO_SHORTENED)

    def encode(self) -> bytes:
        """Return the JSON value."""
        value: dict[str, object] = {
            "version": 5,
            "host": self.host,
            "port": self.port,
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": list(self.endpoints),
            "listener_security_protocol_map": dict(self.listener_security_protocol_map),
            "features": {
                name: {"min_version": low, "max_version": high} for name, (low, high) in self.features.items()
            },
        }
        if self.rack is not None:
            value["rack"] = self.rack
        if self.incarnation is not None:
            value["incarnation"] = self.incarnation
        if self.admin is not None:
            value["admin"] = self.admin
        if self.reads_queue:
            value["reads_queue"] = True
        if self.shortened:
            value["shortened"] = {topic: _log_ends_json(ends) for topic, ends in self.shortened.items()}
        return _json(value)

    @classmethod
    def decode(cls, broker_id: int, data: bytes | None) -> BrokerRecord:
        """Read version 4 or 5.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.broker_id_path(broker_id), data)
        fields.integer("version", 4, 5)
        protocols = fields.nested("listener_security_protocol_map")
        features = fields.nested_or_empty("features")
        shortened = fields.nested_or_empty("shortened")
        return cls(
            host=fields.string_or_none("host"),
            port=fields.integer("port", -1, 65535),
            endpoints=fields.strings("endpoints"),
            listener_security_protocol_map={name: protocols.string(name) for name in protocols.names()},
            timestamp_ms=fields.decimal_string("timestamp"),
            rack=fields.string_or_none("rack"),
            incarnation=fields.string_or_none("incarnation"),
            jmx_port=fields.integer_or("jmx_port", -1, -1, 65535),
            features={name: _feature_range(features.nested(name)) for name in features.names()},
            admin=fields.string_or_none("admin"),
            reads_queue=fields.boolean_or("reads_queue", False),
            shortened={name: _log_ends(shortened.nested(name)) for name in shortened.names()},
        )


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """The value of /brokers/generations/N: whose disk registered last. Its mzxid equals the generation."""

    #: Identity of the broker's data directory, 32 hex digits.
    incarnation: str

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json({"version": 1, "incarnation": self.incarnation})

    @classmethod
    def decode(cls, broker_id: int, data: bytes | None) -> GenerationRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.broker_generation_path(broker_id), data)
        fields.integer("version", 1, 1)
        return cls(incarnation=fields.string("incarnation"))


@dataclass(frozen=True, slots=True)
class IncarnationRecord:
    """The value of /brokers/incarnations/N: whose disk the broker's ISR memberships belong to."""

    #: Identity of the broker's data directory, 32 hex digits.
    incarnation: str
    #: The last registration whose shortened logs were taken out of ISRs, -1 for none.
    generation: int = -1
    #: {topic that nothing could be decided about then: incarnation that its memberships still belong to}; its
    #: shortened logs were not judged either.
    topics: Mapping[str, str] = field(default_factory=lambda: _NO_TOPICS)

    def encode(self) -> bytes:
        """Return the JSON value."""
        value: dict[str, object] = {"version": 1, "incarnation": self.incarnation}
        if self.generation >= 0:
            value["generation"] = self.generation
        if self.topics:
            value["topics"] = dict(self.topics)
        return _json(value)

    @classmethod
    def decode(cls, broker_id: int, data: bytes | None) -> IncarnationRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.broker_incarnation_path(broker_id), data)
        fields.integer("version", 1, 1)
        topics = fields.nested_or_empty("topics")
        return cls(
            incarnation=fields.string("incarnation"),
            generation=fields.integer_or("generation", -1, -1, INT64_MAX),
            topics={name: topics.string(name) for name in topics.names()},
        )


@dataclass(frozen=True, slots=True)
class TopicConfigRecord:
    """The value of /config/topics/T: the settings that were given for the topic, as texts."""

    #: {Kafka's name: text}
    settings: Mapping[str, str]

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json({"version": 1, "config": dict(self.settings)})

    @classmethod
    def decode(cls, topic: str, data: bytes | None) -> TopicConfigRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        return cls(_read_settings(paths.config_topic_path(topic), data))


@dataclass(frozen=True, slots=True)
class BrokerConfigRecord:
    """The value of /config/brokers/N: the settings that were given for a running broker, as texts."""

    #: {Kafka's name: text}
    settings: Mapping[str, str]

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json({"version": 1, "config": dict(self.settings)})

    @classmethod
    def decode(cls, broker_id: int, data: bytes | None) -> BrokerConfigRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        return cls(_read_settings(paths.config_broker_path(broker_id), data))


def _read_settings(path: str, data: bytes | None) -> dict[str, str]:
    fields = JsonFields.parse(path, data)
    fields.integer("version", 1, 1)
    config = fields.nested("config")
    return {name: config.string(name) for name in config.names()}


@dataclass(frozen=True, slots=True)
class ProducerIdBlockRecord:
    """The value of /latest_producer_id_block: the block of producer ids that was taken last."""

    broker_id: int
    first: int
    #: Inclusive.
    last: int

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def decode(cls, data: bytes | None) -> ProducerIdBlockRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.LATEST_PRODUCER_ID_BLOCK, data)
        fields.integer("version", 1, 1)
        return cls(
            broker_id=fields.integer("broker", 0),
            first=fields.decimal_string("block_start"),
            last=fields.decimal_string("block_end"),
        )


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """The value of /brokers/topics/T, version 3."""

    #: None only in a topic that a Kafka older than 2.8 created.
    topic_id: TopicId | None
    #: {partition: replicas}, the first replica preferred.
    partitions: Mapping[int, tuple[int, ...]]
    #: {partition: replicas that a running reassignment adds}
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: _NO_REPLICAS)
    #: {partition: replicas that a running reassignment removes}
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: _NO_REPLICAS)

    def encode(self) -> bytes:
        """Return the JSON value: version 3, or 2 for a topic without an id, as Kafka does."""
        value: dict[str, object] = {"version": 2 if self.topic_id is None else 3}
        if self.topic_id is not None:
            value["topic_id"] = encode_topic_id(self.topic_id)
        value["partitions"] = _replicas_json(self.partitions)
        value["adding_replicas"] = _replicas_json(self.adding_replicas)
        value["removing_replicas"] = _replicas_json(self.removing_replicas)
        return _json(value)

    @classmethod
    def decode(cls, topic: str, data: bytes | None) -> TopicRecord:
        """Read versions 1 to 3.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.topic_path(topic), data)
        written = fields.integer("version", 1, 3)
        return cls(
            topic_id=_topic_id(fields) if written >= 3 else None,
            partitions=_replicas(fields.nested("partitions")),
            adding_replicas=_replicas(fields.nested_or_empty("adding_replicas")),
            removing_replicas=_replicas(fields.nested_or_empty("removing_replicas")),
        )


@dataclass(frozen=True, slots=True)
class PartitionStateRecord:
    """leaderAndISR: the value of /brokers/topics/T/partitions/P/state, version 1.

    The version of the znode is the token of its compare-and-set and no part of the value.
    """

    controller_epoch: ControllerEpoch
    #: Broker id, or NO_LEADER while the partition is offline.
    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    #: RECOVERED, or RECOVERING after an unclean election.
    leader_recovery_state: int = RECOVERED
    #: {broker id: where its log ends} of shortened logs: should nobody be left in the ISR, the
    #: one with the highest end leads. A leader that changes the ISR drops it.
    shortened: Mapping[int, LogEnd] = field(default_factory=lambda: _NO_LOG_ENDS)

    def encode(self) -> bytes:
        """Return the JSON value."""
        # Formatted by hand: integers only, and a failover writes tens of thousands of these.
        recovery = (
            ""
            if self.leader_recovery_state == RECOVERED
            else (f',"leader_recovery_state":{self.leader_recovery_state}')
        )
        if self.shortened:
            recovery += f',"shortened":{_json(_log_ends_json(self.shortened)).decode()}'
        return (
            f'{{"controller_epoch":{self.controller_epoch},"leader":{self.leader},"version":1,'
            f'"leader_epoch":{self.leader_epoch},"isr":[{",".join(map(str, self.isr))}]{recovery}}}'
        ).encode("ascii")

    @classmethod
    def decode(cls, key: PartitionKey, data: bytes | None) -> PartitionStateRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed, or the leader is not in the ISR.
        """
        fields = JsonFields.parse(paths.partition_state_path(key), data)
        fields.integer("version", 1, 1)
        state = cls(
            controller_epoch=ControllerEpoch(fields.integer("controller_epoch", 0)),
            leader=fields.integer("leader", NO_LEADER),
            leader_epoch=LeaderEpoch(fields.integer("leader_epoch", 0)),
            isr=fields.broker_ids("isr"),
            leader_recovery_state=fields.integer_or(
                "leader_recovery_state", RECOVERED, RECOVERED, RECOVERING
            ),
            shortened=_log_ends(fields.nested_or_empty("shortened")),
        )
        if state.leader != NO_LEADER and state.leader not in state.isr:
            fields.refuse("leader", f"a member of the isr {list(state.isr)}, or {NO_LEADER}")
        return state


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the value of /cluster/id (its version is a string, as Kafka writes it)."""
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None, path: str = paths.CLUSTER_ID) -> str:
    """Read the value of /cluster/id.

    Raises:
        MetadataDecodeError: the value is malformed or the id is empty.
    """
    fields = JsonFields.parse(path, data)
    cluster_id = fields.string("id")
    if not cluster_id:
        fields.refuse("id", "a string that is not empty")
    return cluster_id


def encode_topic_id(topic_id: TopicId) -> str:
    """Return a topic id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def topic_label(topic: str, topic_id: TopicId | None) -> str:
    """Return what a registration calls a topic: its id, or its name where it has none."""
    return topic if topic_id is None else encode_topic_id(topic_id)


def _log_ends(fields: JsonFields) -> dict[int, LogEnd]:
    ends: dict[int, LogEnd] = {}
    for name in fields.names():
        if not (name.isascii() and name.isdecimal()) or name != str(int(name[:11])) or int(name) > INT32_MAX:
            fields.refuse(name, "a number as the key")
        leader_epoch, offset = fields.integers(name, 2)
        ends[int(name)] = LogEnd(leader_epoch, offset)
    return ends


def _log_ends_json(ends: Mapping[int, LogEnd]) -> dict[str, LogEnd]:
    return {str(number): ends[number] for number in sorted(ends)}


def _topic_id(fields: JsonFields) -> TopicId:
    text = fields.string("topic_id")
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raw = b""
    if len(raw) != 16:
        fields.refuse("topic_id", "22 characters of URL-safe base64")
    return uuid.UUID(bytes=raw)


def _replicas(fields: JsonFields) -> dict[int, tuple[int, ...]]:
    replicas: dict[int, tuple[int, ...]] = {}
    for name in fields.names():
        if not (name.isascii() and name.isdecimal()) or name != str(int(name[:11])) or int(name) > INT32_MAX:
            fields.refuse(name, "a partition number as the key")
        replicas[int(name)] = fields.broker_ids(name)
    return replicas


def _replicas_json(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


def _feature_range(fields: JsonFields) -> tuple[int, int]:
    low = fields.integer("min_version", 0, 32767)
    return low, fields.integer("max_version", low, 32767)


def _json(value: Mapping[str, object]) -> bytes:
    # Escaped, so that a lone surrogate that was read (JSON can spell one) can be written again.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
