"""The table of requests: which versions of each a listener serves, how large, and what carries it out.

What is advertised is what is served, with one exception: Produce is advertised from 0, because librdkafka
concludes from Produce 0 that a broker knows gzip and snappy. Versions 0 to 2 close the connection, as in
Kafka 4. What a request does is decided by its handler.

A frame's largest size is that of what such a request carries: only Produce carries records. The setting
limits.frame_bytes_max bounds all of them.
Source: Kafka's protocol guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.server.api.acls import create_acls, delete_acls, describe_acls
from broker.server.api.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from broker.server.api.consumer_groups import consumer_group_describe, consumer_group_heartbeat
from broker.server.api.control import control, controlled_shutdown
from broker.server.api.coordinators import find_coordinator
from broker.server.api.fetch import fetch
from broker.server.api.group_offsets import offset_commit, offset_delete, offset_fetch, txn_offset_commit
from broker.server.api.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from broker.server.api.list_offsets import list_offsets, offset_for_leader_epoch
from broker.server.api.logs import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
)
from broker.server.api.metadata import describe_cluster, metadata
from broker.server.api.partition_admin import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from broker.server.api.produce import produce
from broker.server.api.producer_ids import init_producer_id
from broker.server.api.quotas import alter_client_quotas, describe_client_quotas
from broker.server.api.topic_partitions import describe_topic_partitions
from broker.server.api.topics import create_partitions, create_topics, delete_topics
from broker.server.api.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from broker.server.api.txn_markers import write_txn_markers
from broker.server.api.users import alter_user_scram_credentials, describe_user_scram_credentials
from broker.server.requests import Row, Served, Versions
from controller.wire.apis import ApiKey

#: of a request about all partitions of a large cluster, about settings, or with what members send each other
_LONG: Final = 8 * 1024 * 1024

REQUESTS: Final[Mapping[ApiKey, Row]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Row(
            produce, client=Versions(3, 10), advertised_from=0, frame_bytes_max=None, overlaps=True
        ),
        ApiKey.FETCH: Row(
            fetch,
            client=Versions(4, 17),
            broker=Versions(4, 16),
            frame_bytes_max=_LONG,
            carries_records=True,
            ends_with_connection=True,
        ),
        ApiKey.LIST_OFFSETS: Row(
            list_offsets,
            client=Versions(1, 9),
            broker=Versions(7, 7),
            frame_bytes_max=_LONG,
            ends_with_connection=True,
        ),
        ApiKey.METADATA: Row(metadata, client=Versions(0, 12), frame_bytes_max=_LONG),
        ApiKey.LEADER_AND_ISR: Row(control, broker=Versions(6, 6), frame_bytes_max=_LONG),
        ApiKey.STOP_REPLICA: Row(control, broker=Versions(3, 3), frame_bytes_max=_LONG),
        ApiKey.UPDATE_METADATA: Row(control, broker=Versions(7, 7), frame_bytes_max=_LONG),
        ApiKey.CONTROLLED_SHUTDOWN: Row(controlled_shutdown, broker=Versions(3, 3), frame_bytes_max=_LONG),
        ApiKey.OFFSET_COMMIT: Row(offset_commit, client=Versions(2, 10), frame_bytes_max=_LONG),
        ApiKey.OFFSET_FETCH: Row(offset_fetch, client=Versions(1, 10), frame_bytes_max=_LONG),
        ApiKey.FIND_COORDINATOR: Row(find_coordinator, client=Versions(0, 6)),
        ApiKey.JOIN_GROUP: Row(join_group, client=Versions(0, 9), frame_bytes_max=_LONG),
        ApiKey.HEARTBEAT: Row(heartbeat, client=Versions(0, 4)),
        ApiKey.LEAVE_GROUP: Row(leave_group, client=Versions(0, 5)),
        ApiKey.SYNC_GROUP: Row(sync_group, client=Versions(0, 5), frame_bytes_max=_LONG),
        ApiKey.DESCRIBE_GROUPS: Row(describe_groups, client=Versions(0, 6)),
        ApiKey.LIST_GROUPS: Row(list_groups, client=Versions(0, 5)),
        ApiKey.SASL_HANDSHAKE: Row(None, client=Versions(1, 1), broker=Versions(1, 1)),
        ApiKey.API_VERSIONS: Row(None, client=Versions(0, 4), broker=Versions(0, 4)),
        ApiKey.CREATE_TOPICS: Row(
            create_topics, client=Versions(0, 7), broker=Versions(7, 7), frame_bytes_max=_LONG
        ),
        ApiKey.DELETE_TOPICS: Row(delete_topics, client=Versions(0, 6)),
        ApiKey.DELETE_RECORDS: Row(delete_records, client=Versions(0, 2), frame_bytes_max=_LONG),
        ApiKey.INIT_PRODUCER_ID: Row(init_producer_id, client=Versions(0, 5)),
        ApiKey.ADD_PARTITIONS_TO_TXN: Row(
            add_partitions_to_txn, client=Versions(0, 3), broker=Versions(4, 5), frame_bytes_max=_LONG
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: Row(add_offsets_to_txn, client=Versions(0, 4)),
        ApiKey.END_TXN: Row(end_txn, client=Versions(0, 4)),
        ApiKey.TXN_OFFSET_COMMIT: Row(txn_offset_commit, client=Versions(0, 4), frame_bytes_max=_LONG),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(
            offset_for_leader_epoch, client=Versions(2, 4), broker=Versions(2, 4)
        ),
        ApiKey.WRITE_TXN_MARKERS: Row(
            write_txn_markers, guarded=Versions(1, 1), broker=Versions(1, 1), frame_bytes_max=_LONG
        ),
        ApiKey.DESCRIBE_ACLS: Row(describe_acls, client=Versions(1, 3)),
        ApiKey.CREATE_ACLS: Row(create_acls, client=Versions(1, 3)),
        ApiKey.DELETE_ACLS: Row(delete_acls, client=Versions(1, 3)),
        ApiKey.DESCRIBE_CONFIGS: Row(describe_configs, client=Versions(0, 4), frame_bytes_max=_LONG),
        ApiKey.ALTER_CONFIGS: Row(alter_configs, client=Versions(0, 2), frame_bytes_max=_LONG),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Row(
            alter_replica_log_dirs, client=Versions(1, 2), frame_bytes_max=_LONG
        ),
        ApiKey.DESCRIBE_LOG_DIRS: Row(describe_log_dirs, client=Versions(1, 4), frame_bytes_max=_LONG),
        ApiKey.SASL_AUTHENTICATE: Row(None, client=Versions(0, 2), broker=Versions(2, 2)),
        ApiKey.CREATE_PARTITIONS: Row(create_partitions, client=Versions(0, 3)),
        ApiKey.DELETE_GROUPS: Row(delete_groups, client=Versions(0, 2)),
        ApiKey.ELECT_LEADERS: Row(elect_leaders, client=Versions(0, 2), frame_bytes_max=_LONG),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(
            incremental_alter_configs, client=Versions(0, 1), frame_bytes_max=_LONG
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(
            alter_partition_reassignments, client=Versions(0, 0), frame_bytes_max=_LONG
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(
            list_partition_reassignments, client=Versions(0, 0), frame_bytes_max=_LONG
        ),
        ApiKey.OFFSET_DELETE: Row(offset_delete, client=Versions(0, 0)),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Row(describe_client_quotas, client=Versions(0, 1)),
        ApiKey.ALTER_CLIENT_QUOTAS: Row(alter_client_quotas, client=Versions(0, 1)),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Row(describe_user_scram_credentials, client=Versions(0, 0)),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Row(alter_user_scram_credentials, client=Versions(0, 0)),
        ApiKey.DESCRIBE_CLUSTER: Row(describe_cluster, client=Versions(0, 1)),
        ApiKey.DESCRIBE_PRODUCERS: Row(describe_producers, client=Versions(0, 0), frame_bytes_max=_LONG),
        ApiKey.DESCRIBE_TRANSACTIONS: Row(describe_transactions, client=Versions(0, 0)),
        ApiKey.LIST_TRANSACTIONS: Row(list_transactions, client=Versions(0, 1)),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Row(consumer_group_heartbeat, client=Versions(0, 1)),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Row(consumer_group_describe, client=Versions(0, 1)),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row(
            describe_topic_partitions, client=Versions(0, 0), frame_bytes_max=_LONG
        ),
    }
)


def _served(versions: Mapping[ApiKey, Versions | None]) -> Mapping[int, Served]:
    return MappingProxyType(
        {int(key): Served(found, REQUESTS[key]) for key, found in versions.items() if found is not None}
    )


#: What the listener of Kafka's clients serves, by api key.
FOR_CLIENTS: Final = _served({key: row.client for key, row in REQUESTS.items()})
#: What it serves where access lists count.
FOR_GUARDED_CLIENTS: Final = _served({key: row.client or row.guarded for key, row in REQUESTS.items()})
#: What the listener of the controller and of followers serves.
FOR_BROKERS: Final = _served({key: row.broker for key, row in REQUESTS.items()})
