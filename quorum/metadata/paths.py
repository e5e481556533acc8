"""Where the typed records live: Kafka's znode paths and those that Quorate adds.

Pure. Knows names only, no values. A topic name becomes a path segment, so it is checked here once, by Kafka's
own rule. A group may have any name, so it is percent-encoded.
Source: kafka.zk.*ZNode (Kafka 3.9); Kafka Topic.validate; RFC 3986.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from quorum.errors import quoted

CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
#: A check value of the peer secret, never the secret.
PEER_CHECK_VALUE: Final = "/cluster/peer_secret_check"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_GENERATIONS: Final = "/brokers/generations"
BROKER_TOPICS: Final = "/brokers/topics"
BROKER_INCARNATIONS: Final = "/brokers/incarnations"
BROKER_QUEUES: Final = "/brokers/state"
CONFIG: Final = "/config"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
#: for the brokers alone, whatever else is protected
CONFIG_USERS: Final = "/config/users"
#: quotas of client ids; those of users are with the users
CONFIG_CLIENTS: Final = "/config/clients"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
LATEST_PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
COORDINATOR: Final = "/consumers/coordinator"
COORDINATOR_EPOCH: Final = "/consumers/coordinator_epoch"
GROUPS: Final = "/consumers/groups"
TRANSACTIONS: Final = "/transactions"
#: Entries of literal names, and of the beginnings of names.
KAFKA_ACL: Final = "/kafka-acl"
KAFKA_ACL_EXTENDED: Final = "/kafka-acl-extended"
KAFKA_ACL_PREFIXED: Final = f"{KAFKA_ACL_EXTENDED}/prefixed"
#: A child that keeps a node which only its owners may change; the path of no group and no transactional id.
KEPT: Final = "%kept"

#: Persistent parents, each after its own parent, that must exist before the records under them.
BASE_PATHS: Final = (
    *(CLUSTER, "/brokers", BROKER_IDS, BROKER_GENERATIONS, BROKER_TOPICS, BROKER_INCARNATIONS),
    BROKER_QUEUES,
    *(CONFIG, CONFIG_TOPICS, CONFIG_BROKERS, "/admin", DELETE_TOPICS, "/consumers", GROUPS),
    TRANSACTIONS,
)
#: What of the root's children is the brokers'; nothing else of a quorum is theirs.
TREE_ROOTS: Final = (
    *("/brokers", CONTROLLER, CONTROLLER_EPOCH, CONFIG, "/admin", "/consumers", LATEST_PRODUCER_ID_BLOCK),
    *(TRANSACTIONS, KAFKA_ACL, KAFKA_ACL_EXTENDED, CLUSTER),
)
#: Of users of brokers, and of members and quotas of nodes: who keeps those writes there, no other operator.
_ADMINS_ROOTS: Final = (CONFIG_USERS, "/zookeeper")

TOPIC_LENGTH_MAX: Final = 249
#: What file systems allow; a log's folder is named topic-partition.
FOLDER_LENGTH_MAX: Final = 255
_TOPIC_PATTERN: Final = re.compile(r"[a-zA-Z0-9._-]+")
#: Begins the names of the chunks of a group's record.
GROUP_CHUNK: Final = "chunk-"
#: Longest name of a group, in bytes of UTF-8.
GROUP_BYTES_MAX: Final = 1_024
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
#: {byte: what stands for it in a path}
_ESCAPED: Final = {byte: chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256)}
_ESCAPE: Final = re.compile(rb"%([0-9A-F]{2})")


def is_for_admins(path: str) -> bool:
    """Tell whether a znode says who may do what: of users, access lists with their notices, /zookeeper."""
    return path.startswith(KAFKA_ACL) or f"{path}/".startswith(tuple(f"{root}/" for root in _ADMINS_ROOTS))


class PartitionKey(NamedTuple):
    """Names one partition of one topic."""

    topic: str
    partition: int


def by_topic(keys: Iterable[PartitionKey]) -> dict[str, list[PartitionKey]]:
    """Return {topic: its partitions}, in the order in which they are given."""
    topics: dict[str, list[PartitionKey]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key)
    return topics


def check_topic(topic: str) -> str:
    """Return the topic name if Kafka would accept it.

    Raises:
        ValueError: the name is empty, too long, "." or "..", or has a character outside [a-zA-Z0-9._-].
    """
    problem = ""
    # Kafka's words: scripts look for them.
    if not topic:
        problem = "the empty string is not allowed"
    elif topic in (".", ".."):
        problem = f"{topic!r} is not allowed"
    elif len(topic) > TOPIC_LENGTH_MAX:
        problem = f"the length of '{quoted(topic)}' is longer than the max allowed length {TOPIC_LENGTH_MAX}"
    elif not _TOPIC_PATTERN.fullmatch(topic):
        others = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        problem = f"'{quoted(topic)}' {others}"
    if problem:
        raise ValueError(f"Topic name is invalid: {problem}")
    return topic


def missing_topic(topic: str) -> str:
    """Say in Kafka's words that the topic does not exist."""
    return f"The topic '{quoted(topic)}' does not exist."


def check_partitions(topic: str, partitions: Iterable[int]) -> None:
    """See that partitions of a topic can exist: its name, their numbers, the names of their folders.

    Raises:
        ValueError: check_topic refuses the name, a number is negative, or a folder's name would be too long.
    """
    check_topic(topic)
    for partition in partitions:
        if partition < 0:
            raise ValueError(f"partition {partition} of topic {topic!r}: numbers begin with 0")
        if len(topic) + 1 + len(str(partition)) > FOLDER_LENGTH_MAX:
            raise ValueError(f"partition {partition} of topic {topic!r}: its folder's name would be too long")


def broker_id_path(broker_id: int) -> str:
    """Path of the ephemeral registration of a broker; its czxid is the broker's generation."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_generation_path(broker_id: int) -> str:
    """Path of the persistent node whose mzxid equals the broker's generation."""
    return f"{BROKER_GENERATIONS}/{broker_id}"


def broker_incarnation_path(broker_id: int) -> str:
    """Path of the incarnation by which the controller last judged the ISR memberships of a broker."""
    return f"{BROKER_INCARNATIONS}/{broker_id}"


def queue_path(broker_id: int) -> str:
    """Path of a broker's queue of state changes; its entries are persistent sequential children."""
    return f"{BROKER_QUEUES}/{broker_id}"


def config_topic_path(topic: str) -> str:
    """Path of a topic's settings."""
    return f"{CONFIG_TOPICS}/{topic}"


def config_broker_path(broker_id: int) -> str:
    """Path of the settings of a broker that change while it runs."""
    return f"{CONFIG_BROKERS}/{broker_id}"


def delete_topic_path(topic: str) -> str:
    """Path of a request to delete a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def topic_path(topic: str) -> str:
    """Path of a topic's assignment."""
    return f"{BROKER_TOPICS}/{topic}"


def topic_partitions_path(topic: str) -> str:
    """Path of the parent of a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(key: PartitionKey) -> str:
    """Path of the parent of one partition's state."""
    return f"{BROKER_TOPICS}/{key.topic}/partitions/{key.partition}"


def partition_state_path(key: PartitionKey) -> str:
    """Path of a partition's leaderAndISR; its znode version is the compare-and-set token."""
    return f"{BROKER_TOPICS}/{key.topic}/partitions/{key.partition}/state"


@functools.lru_cache(maxsize=4_096)
def group_path(group_id: str) -> str:
    """Path of a consumer group: its members and their assignment."""
    return f"{GROUPS}/{_segment(group_id)}"


def group_id_of(segment: str) -> str | None:
    """Return the group, or the transactional id, whose path ends so; None if none has such a path."""
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), segment.encode("utf-8", "surrogatepass"))
    try:
        group_id = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return group_id if _segment(group_id) == segment else None


def _segment(name: str) -> str:
    return name.encode("utf-8", "surrogatepass").decode("latin-1").translate(_ESCAPED)


def transaction_path(transactional_id: str) -> str:
    """Path of a transactional id: its producer and its transaction."""
    return f"{TRANSACTIONS}/{_segment(transactional_id)}"


def pending_offsets_path(transactional_id: str, group_id: str) -> str:
    """Path of what a transaction commits for a group when it ends."""
    return f"{transaction_path(transactional_id)}/{_segment(group_id)}"


def group_offsets_path(group_id: str) -> str:
    """Path of the parent of a group's committed offsets."""
    return f"{group_path(group_id)}/offsets"


def group_chunk_path(group_id: str, name: str) -> str:
    """Path of a part of a group's record, where that is larger than one znode holds."""
    return f"{group_path(group_id)}/{name}"


def group_topic_path(group_id: str, topic: str) -> str:
    """Path of the parent of a group's committed offsets of one topic."""
    return f"{group_path(group_id)}/offsets/{topic}"


def group_offset_path(group_id: str, key: PartitionKey) -> str:
    """Path of the offset that a group has committed for one partition."""
    return f"{group_path(group_id)}/offsets/{key.topic}/{key.partition}"
