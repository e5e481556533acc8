"""The four control requests and their answers, as entities of kio, which itself has none of them.

LeaderAndIsr 6, UpdateMetadata 7, StopReplica 3 and ControlledShutdown 3; fields are those of Kafka's message
definitions, in their order. Requests that go to many brokers are packed by `packing`, not from here. Which
broker a request is for and whether it is still valid is decided by who reads it.
Postponed annotations must stay off: kio reads the types of the fields.
Source: clients/src/main/resources/common/message/*.json (Kafka 3.9.1); KIP-380, KIP-516, KIP-570, KIP-704.
"""

import io
import struct
import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from kio.schema.request_header.v2 import RequestHeader
from kio.schema.response_header.v1 import ResponseHeader
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16
from kio.static.protocol import Entity

from controller.wire.decoding import Buffer, MalformedMessageError, decode, packed_varint
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import check_partitions

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7

#: LeaderAndIsrRequest.type: some of the receiver's partitions. It is for people who read bytes; a receiver
#: concludes nothing from it.
INCREMENTAL: Final = 1

#: {name in a registration: UpdateMetadataEndpoint.security_protocol}
SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

T = TypeVar("T", bound=Entity)

#: partition_index, error_code, no tagged fields
_PARTITION_ERROR: Final = struct.Struct(">ihB")
_ERROR_CODE: Final = struct.Struct(">h")
_NO_ID: Final = bytes(16)

_INT8: Final = {"kafka_type": "int8"}
_INT16: Final = {"kafka_type": "int16"}
_INT32: Final = {"kafka_type": "int32"}
_INT64: Final = {"kafka_type": "int64"}
_BOOL: Final = {"kafka_type": "bool"}
_STRING: Final = {"kafka_type": "string"}
_UUID: Final = {"kafka_type": "uuid"}


class _Flexible:
    """What all entities here share: tagged fields at the end of every struct."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.nested
    __flexible__: ClassVar[bool] = True


class _Request(_Flexible):
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfController(_Request):
    controller_id: int = field(metadata=_INT32)
    controller_epoch: ControllerEpoch = field(metadata=_INT32)
    broker_epoch: BrokerGeneration = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response(_Flexible):
    __type__: ClassVar[EntityType] = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: int = field(metadata=_INT16)


class _LeaderAndIsr(_Flexible):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
    __version__: ClassVar[i16] = i16(6)


class _StopReplica(_Flexible):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    __version__: ClassVar[i16] = i16(3)


class _UpdateMetadata(_Flexible):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    __version__: ClassVar[i16] = i16(7)


class _ControlledShutdown(_Flexible):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(CONTROLLED_SHUTDOWN)
    __version__: ClassVar[i16] = i16(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_LeaderAndIsr):
    """The state of one partition that has a replica on the receiver."""

    partition_index: int = field(metadata=_INT32)
    #: Of the controller that wrote the state, which is not always the sender.
    controller_epoch: ControllerEpoch = field(metadata=_INT32)
    #: Broker id, or -1.
    leader: int = field(metadata=_INT32)
    leader_epoch: LeaderEpoch = field(metadata=_INT32)
    isr: tuple[int, ...] = field(metadata=_INT32)
    partition_epoch: PartitionVersion = field(metadata=_INT32)
    #: The preferred leader first.
    replicas: tuple[int, ...] = field(metadata=_INT32)
    adding_replicas: tuple[int, ...] = field(metadata=_INT32, default=())
    removing_replicas: tuple[int, ...] = field(metadata=_INT32, default=())
    is_new: bool = field(metadata=_BOOL, default=False)
    #: 1 after an unclean election, else 0.
    leader_recovery_state: int = field(metadata=_INT8, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(_LeaderAndIsr):
    """The partitions of one topic."""

    topic_name: str = field(metadata=_STRING)
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_LeaderAndIsr):
    """Where a leader named in the request listens for followers."""

    broker_id: int = field(metadata=_INT32)
    host_name: str = field(metadata=_STRING)
    port: int = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_LeaderAndIsr, _OfController):
    """Lead or follow these partitions; what it does not name stays as it is."""

    type: int = field(metadata=_INT8)
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(_LeaderAndIsr):
    """What became of one partition of the request."""

    partition_index: int = field(metadata=_INT32)
    error_code: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_LeaderAndIsr):
    """What became of the partitions of one topic."""

    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsr, _Response):
    """The answer to a LeaderAndIsrRequest."""

    topics: tuple[LeaderAndIsrTopicError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_UpdateMetadata):
    """What clients are to know of one partition."""

    partition_index: int = field(metadata=_INT32)
    controller_epoch: ControllerEpoch = field(metadata=_INT32)
    #: Broker id; -1: offline; -2: the topic is being deleted.
    leader: int = field(metadata=_INT32)
    leader_epoch: LeaderEpoch = field(metadata=_INT32)
    isr: tuple[int, ...] = field(metadata=_INT32)
    zk_version: PartitionVersion = field(metadata=_INT32)
    replicas: tuple[int, ...] = field(metadata=_INT32)
    offline_replicas: tuple[int, ...] = field(metadata=_INT32, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_UpdateMetadata):
    """The partitions of one topic."""

    topic_name: str = field(metadata=_STRING)
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadata):
    """One listener of a broker."""

    port: int = field(metadata=_INT32)
    host: str = field(metadata=_STRING)
    listener: str = field(metadata=_STRING)
    #: A value of SECURITY_PROTOCOLS.
    security_protocol: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadata):
    """A live broker and its listeners."""

    id: int = field(metadata=_INT32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_UpdateMetadata, _OfController):
    """All live brokers, and the partitions that changed."""

    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_UpdateMetadata, _Response):
    """The answer to an UpdateMetadataRequest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(_StopReplica):
    """A replica that the receiver shall stop."""

    partition_index: int = field(metadata=_INT32)
    #: -2 where the topic is being deleted: no epoch is too old for that (KIP-570).
    leader_epoch: LeaderEpoch = field(metadata=_INT32)
    delete_partition: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_StopReplica):
    """The replicas of one topic."""

    topic_name: str = field(metadata=_STRING)
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplica, _OfController):
    """Stop these replicas, and delete those that say so."""

    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_StopReplica):
    """What became of one replica of the request."""

    topic_name: str = field(metadata=_STRING)
    partition_index: int = field(metadata=_INT32)
    error_code: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplica, _Response):
    """The answer to a StopReplicaRequest."""

    partition_errors: tuple[StopReplicaPartitionError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(_ControlledShutdown, _Request):
    """A broker asks the controller to move its leaders away."""

    broker_id: int = field(metadata=_INT32)
    broker_epoch: BrokerGeneration = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_ControlledShutdown):
    """A partition that the broker still leads."""

    topic_name: str = field(metadata=_STRING)
    partition_index: int = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_ControlledShutdown, _Response):
    """The answer to a ControlledShutdownRequest."""

    remaining_partitions: tuple[RemainingPartition, ...] = ()


#: What a controller asks of brokers.
ControllerRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlRequest = ControllerRequest | ControlledShutdownRequest
ControlResponse = (
    LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse | ControlledShutdownResponse
)

_REQUESTS: Final[dict[int, type[ControlRequest]]] = {
    LEADER_AND_ISR: LeaderAndIsrRequest,
    STOP_REPLICA: StopReplicaRequest,
    UPDATE_METADATA: UpdateMetadataRequest,
    CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
}
_RESPONSES: Final[dict[int, type[ControlResponse]]] = {
    LEADER_AND_ISR: LeaderAndIsrResponse,
    STOP_REPLICA: StopReplicaResponse,
    UPDATE_METADATA: UpdateMetadataResponse,
    CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
}
#: {api key: the one version that is spoken}
CONTROL_VERSIONS: Final = {api_key: int(entity.__version__) for api_key, entity in _REQUESTS.items()}


def decode_request(api_key: int, api_version: int, body: Buffer) -> ControlRequest:
    """Read a control request; topics and partitions in it have names and numbers that they can have.

    Args:
        api_key: of its header; one of CONTROL_VERSIONS.
        api_version: of its header.
        body: what follows the header.
    """
    request = decode(_entity(_REQUESTS, api_key, api_version), body)
    try:
        for topic in () if isinstance(request, ControlledShutdownRequest) else request.topic_states:
            check_partitions(topic.topic_name, (each.partition_index for each in topic.partition_states))
    except ValueError as error:
        raise MalformedMessageError(type(request).__name__, str(error)) from error
    return request


def decode_response(api_key: int, api_version: int, body: Buffer) -> ControlResponse:
    """Read the answer to a control request of that key and version."""
    return decode(_entity(_RESPONSES, api_key, api_version), body)


def refusal(request: ControlRequest, error_code: int) -> ControlResponse:
    """Return the answer to a request of which nothing is carried out."""
    return _RESPONSES[request.__api_key__](error_code=error_code)


def partition_codes(answer: ControlResponse) -> list[int]:
    """Return what became of each partition."""
    match answer:
        case LeaderAndIsrResponse(topics=topics):
            return [each.error_code for topic in topics for each in topic.partition_errors]
        case StopReplicaResponse(partition_errors=errors):
            return [each.error_code for each in errors]
    return []


def encode_request(request: ControlRequest) -> bytes:
    """Return the body of a request that goes to one broker only."""
    return _encode(request)


def encode_response(response: ControlResponse) -> bytes:
    """Return the body of an answer."""
    if not isinstance(response, LeaderAndIsrResponse):
        return _encode(response)
    # By hand, in a tenth of the time: after a broker's death it has a row for each of its partitions.
    parts = [_ERROR_CODE.pack(response.error_code), packed_varint(len(response.topics) + 1)]
    for topic in response.topics:
        topic_id = _NO_ID if topic.topic_id is None else topic.topic_id.bytes
        parts += (topic_id, packed_varint(len(topic.partition_errors) + 1))
        parts += [
            _PARTITION_ERROR.pack(each.partition_index, each.error_code, 0) for each in topic.partition_errors
        ]
        parts.append(b"\0")
    return b"".join((*parts, b"\0"))


def _entity(entities: dict[int, type[T]], api_key: int, api_version: int) -> type[T]:
    if CONTROL_VERSIONS.get(api_key) != api_version:
        problem = f"key {api_key} in version {api_version} is no control message that this broker speaks"
        raise MalformedMessageError("control message", problem)
    return entities[api_key]


def _encode(message: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
