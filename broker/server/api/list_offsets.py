"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, and where a leader epoch ended.

Only translates; broker/replication/offsets.py answers for one partition at a time.
Source: docs/concepts/guarantees.md, "Consumers"; KIP-79, KIP-101, KIP-207, KIP-320.
"""

from __future__ import annotations

from broker.server.api.partitions import READ_COMMITTED, named_once, partition_error
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from quorum.metadata.paths import PartitionKey


async def list_offsets(services: BrokerServices, call: Call) -> Answer:
    """Answer the offsets that belong to timestamps."""
    request = call.body
    topics = []
    for name, partitions in named_once(request.topics, "name", "partition_index").items():
        rows = []
        for each in partitions.values():
            found = await services.replicas.logs.list_offset(
                PartitionKey(name, each.partition_index),
                each.timestamp,
                each.current_leader_epoch if call.request.api_version >= 4 else -1,
                is_follower=call.from_broker and request.replica_id >= 0,
                read_committed=call.request.api_version >= 2 and request.isolation_level == READ_COMMITTED,
            )
            rows.append(
                {
                    "partition_index": each.partition_index,
                    "error_code": partition_error(services.view, found.error_code),
                    "timestamp": found.timestamp,
                    "offset": found.offset,
                    "leader_epoch": found.leader_epoch,
                }
            )
        topics.append({"name": name, "partitions": rows})
    return {"topics": topics}


def offset_for_leader_epoch(services: BrokerServices, call: Call) -> Answer:
    """Answer where leader epochs ended."""
    topics = []
    for name, partitions in named_once(call.body.topics, "topic", "partition").items():
        rows = []
        for each in partitions.values():
            found = services.replicas.logs.epoch_end_offset(
                PartitionKey(name, each.partition), each.leader_epoch, each.current_leader_epoch
            )
            rows.append(
                {
                    "error_code": partition_error(services.view, found.error_code),
                    "partition": each.partition,
                    "leader_epoch": found.leader_epoch,
                    "end_offset": found.end_offset,
                }
            )
        topics.append({"topic": name, "partitions": rows})
    return {"topics": topics}
