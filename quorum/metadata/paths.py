"""Where the typed records live: Kafka's znode paths and the two that Quorate adds.

Pure. Knows names only, no values. A topic name becomes a path segment, so it is checked here once, by Kafka's
own rule.
Source: control-plane design, "Paths and values"; kafka.zk.*ZNode (Kafka 3.9); Kafka Topic.validate.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_GENERATIONS: Final = "/brokers/generations"
BROKER_TOPICS: Final = "/brokers/topics"
BROKER_INCARNATIONS: Final = "/brokers/incarnations"
CONFIG_TOPICS: Final = "/config/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
LATEST_PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

#: Persistent parents, each after its own parent, that must exist before the records under them.
BASE_PATHS: Final = (
    *("/cluster", "/brokers", BROKER_IDS, BROKER_GENERATIONS, BROKER_TOPICS, BROKER_INCARNATIONS),
    *("/config", CONFIG_TOPICS, "/admin", DELETE_TOPICS),
)

TOPIC_LENGTH_MAX: Final = 249
_TOPIC_PATTERN: Final = re.compile(r"[a-zA-Z0-9._-]+")


class PartitionKey(NamedTuple):
    """Names one partition of one topic."""

    topic: str
    partition: int


def check_topic(topic: str) -> str:
    """Return the topic name if Kafka would accept it.

    Raises:
        ValueError: the name is empty, too long, "." or "..", or has a character outside [a-zA-Z0-9._-].
    """
    if topic in ("", ".", ".."):
        raise ValueError(f'topic name {topic!r}: must not be empty, "." or ".."')
    if len(topic) > TOPIC_LENGTH_MAX:
        raise ValueError(f"topic name of {len(topic)} characters: at most {TOPIC_LENGTH_MAX} are allowed")
    if not _TOPIC_PATTERN.fullmatch(topic):
        raise ValueError(f"topic name {topic!r}: only ASCII letters, digits, '.', '_' and '-' are allowed")
    return topic


def broker_id_path(broker_id: int) -> str:
    """Path of the ephemeral registration of a broker; its czxid is the broker's generation."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_generation_path(broker_id: int) -> str:
    """Path of the persistent node whose mzxid equals the broker's generation."""
    return f"{BROKER_GENERATIONS}/{broker_id}"


def broker_incarnation_path(broker_id: int) -> str:
    """Path of the incarnation by which the controller last judged the ISR memberships of a broker."""
    return f"{BROKER_INCARNATIONS}/{broker_id}"


def config_topic_path(topic: str) -> str:
    """Path of a topic's settings."""
    return f"{CONFIG_TOPICS}/{topic}"


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
