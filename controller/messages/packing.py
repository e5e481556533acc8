"""Bodies of control requests, packed by hand from parts that all receivers share.

The state of a partition is packed once for each change; a request to one broker is a short head of its own
and then these bytes. Byte for byte what the entity encoder writes for LeaderAndIsr 6, UpdateMetadata 7 and
StopReplica 3, at a tenth of its time. Who gets which partition, and how long bytes are kept, is decided by
the caller.
Source: ARCHITECTURE.md, "Life of a controller"; KIP-482 (compact arrays and strings, tagged fields).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from controller.messages.entities import LeaderAndIsrLiveLeader, UpdateMetadataBroker
from controller.wire.decoding import packed_varint
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion

_INT32: Final = struct.Struct(">i")
#: partition_index, leader_epoch, delete_partition, no tagged fields
_STOP: Final = struct.Struct(">ii?B")
#: controller_id, controller_epoch, broker_epoch
_HEAD: Final = struct.Struct(">iiq")
_NO_TAGS: Final = b"\0"
_NULL: Final = b"\0"
_NO_ID: Final = bytes(16)
#: How many layouts of partitions are kept: one for each combination of array lengths that occurs.
_LAYOUTS_MAX: Final = 1000


class _Layout(NamedTuple):
    """How partitions with arrays of these lengths are packed."""

    pack: Callable[..., bytes]
    #: The compact length of each array.
    counts: tuple[bytes, ...]


def pack_leadership(
    partition_index: int,
    controller_epoch: ControllerEpoch,
    leader: int,
    leader_epoch: LeaderEpoch,
    isr: Sequence[int],
    partition_epoch: PartitionVersion,
    replicas: Sequence[int],
    *,
    adding_replicas: Sequence[int] = (),
    removing_replicas: Sequence[int] = (),
    is_new: bool = False,
    leader_recovery_state: int = 0,
) -> bytes:
    """Pack a LeaderAndIsrPartitionState."""
    layout = _leadership_layout(len(isr), len(replicas), len(adding_replicas), len(removing_replicas))
    return layout.pack(
        partition_index,
        controller_epoch,
        leader,
        leader_epoch,
        layout.counts[0],
        *isr,
        partition_epoch,
        layout.counts[1],
        *replicas,
        layout.counts[2],
        *adding_replicas,
        layout.counts[3],
        *removing_replicas,
        is_new,
        leader_recovery_state,
        0,
    )


def pack_metadata(
    partition_index: int,
    controller_epoch: ControllerEpoch,
    leader: int,
    leader_epoch: LeaderEpoch,
    isr: Sequence[int],
    zk_version: PartitionVersion,
    replicas: Sequence[int],
    *,
    offline_replicas: Sequence[int] = (),
) -> bytes:
    """Pack an UpdateMetadataPartitionState."""
    layout = _metadata_layout(len(isr), len(replicas), len(offline_replicas))
    return layout.pack(
        partition_index,
        controller_epoch,
        leader,
        leader_epoch,
        layout.counts[0],
        *isr,
        zk_version,
        layout.counts[1],
        *replicas,
        layout.counts[2],
        *offline_replicas,
        0,
    )


def pack_stop(partition_index: int, leader_epoch: LeaderEpoch, *, delete_partition: bool) -> bytes:
    """Pack a StopReplicaPartitionState."""
    return _STOP.pack(partition_index, leader_epoch, delete_partition, 0)


def pack_topic(topic_name: str, topic_id: uuid.UUID | None, partitions: Sequence[bytes]) -> bytes:
    """Pack a topic of LeaderAndIsr or UpdateMetadata around its packed partitions."""
    topic_id_bytes = _NO_ID if topic_id is None else topic_id.bytes
    return _string(topic_name) + topic_id_bytes + _array(partitions) + _NO_TAGS


def pack_stop_topic(topic_name: str, partitions: Sequence[bytes]) -> bytes:
    """Pack a topic of StopReplica around its packed partitions."""
    return _string(topic_name) + _array(partitions) + _NO_TAGS


def pack_live_leaders(leaders: Sequence[LeaderAndIsrLiveLeader]) -> bytes:
    """Pack LeaderAndIsrRequest.live_leaders."""
    return _array(
        [
            _INT32.pack(each.broker_id) + _string(each.host_name) + _INT32.pack(each.port) + _NO_TAGS
            for each in leaders
        ]
    )


def pack_live_brokers(brokers: Sequence[UpdateMetadataBroker]) -> bytes:
    """Pack UpdateMetadataRequest.live_brokers."""
    return _array(
        [
            b"".join(
                (
                    _INT32.pack(broker.id),
                    _array(
                        [
                            _INT32.pack(each.port)
                            + _string(each.host)
                            + _string(each.listener)
                            + struct.pack(">hB", each.security_protocol, 0)
                            for each in broker.endpoints
                        ]
                    ),
                    _NULL if broker.rack is None else _string(broker.rack),
                    _NO_TAGS,
                )
            )
            for broker in brokers
        ]
    )


def pack_leader_and_isr(
    controller_id: int,
    controller_epoch: ControllerEpoch,
    broker_epoch: BrokerGeneration,
    request_type: int,
    topics: Sequence[bytes],
    live_leaders: bytes,
) -> bytes:
    """Pack the body of LeaderAndIsr 6.

    Args:
        controller_id: the sender.
        controller_epoch: of the sender.
        broker_epoch: generation of the receiver.
        request_type: INCREMENTAL.
        topics: from pack_topic, around partitions of pack_leadership.
        live_leaders: from pack_live_leaders.
    """
    head = _HEAD.pack(controller_id, controller_epoch, broker_epoch) + struct.pack(">b", request_type)
    return b"".join((head, _array(topics), live_leaders, _NO_TAGS))


def pack_update_metadata(
    controller_id: int,
    controller_epoch: ControllerEpoch,
    broker_epoch: BrokerGeneration,
    topics: Sequence[bytes],
    live_brokers: bytes,
) -> bytes:
    """Pack the body of UpdateMetadata 7.

    Args:
        controller_id: the sender.
        controller_epoch: of the sender.
        broker_epoch: generation of the receiver.
        topics: from pack_topic, around partitions of pack_metadata.
        live_brokers: from pack_live_brokers.
    """
    head = _HEAD.pack(controller_id, controller_epoch, broker_epoch)
    return b"".join((head, _array(topics), live_brokers, _NO_TAGS))


def pack_stop_replica(
    controller_id: int,
    controller_epoch: ControllerEpoch,
    broker_epoch: BrokerGeneration,
    topics: Sequence[bytes],
) -> bytes:
    """Pack the body of StopReplica 3.

    Args:
        controller_id: the sender.
        controller_epoch: of the sender.
        broker_epoch: generation of the receiver.
        topics: from pack_stop_topic, around partitions of pack_stop.
    """
    head = _HEAD.pack(controller_id, controller_epoch, broker_epoch)
    return b"".join((head, _array(topics), _NO_TAGS))


@lru_cache(maxsize=_LAYOUTS_MAX)
def _leadership_layout(isr: int, replicas: int, adding: int, removing: int) -> _Layout:
    counts = (_count(isr), _count(replicas), _count(adding), _count(removing))
    arrays = [
        f"{len(count)}s{each}i" for count, each in zip(counts, (isr, replicas, adding, removing), strict=True)
    ]
    return _Layout(struct.Struct(f">iiii{arrays[0]}i{arrays[1]}{arrays[2]}{arrays[3]}?bB").pack, counts)


@lru_cache(maxsize=_LAYOUTS_MAX)
def _metadata_layout(isr: int, replicas: int, offline: int) -> _Layout:
    counts = (_count(isr), _count(replicas), _count(offline))
    arrays = [f"{len(count)}s{each}i" for count, each in zip(counts, (isr, replicas, offline), strict=True)]
    return _Layout(struct.Struct(f">iiii{arrays[0]}i{arrays[1]}{arrays[2]}B").pack, counts)


def _count(length: int) -> bytes:
    """Pack a compact length, which is one more than the number of items or bytes."""
    return packed_varint(length + 1)


def _string(text: str) -> bytes:
    packed = text.encode()
    return _count(len(packed)) + packed


def _array(items: Sequence[bytes]) -> bytes:
    return b"".join((_count(len(items)), *items))
