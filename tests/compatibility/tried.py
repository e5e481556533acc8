"""Which clients, tools and systems were tried with Quorate, in which version, when, and what they did.

Those of tests/clients come from there; a test knows that a file which is named here exists.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.clients.tours import QUICK, QUORUM, SLOW, Client


class Tried(NamedTuple):
    """One row of the page."""

    name: str
    version: str
    #: a day, or a month
    when: str
    did: str
    #: the file that repeats it; empty where nothing does
    where: str


#: when the tours of tests/clients were last made with these versions
TOURS_MADE: Final = "2026-11-26"

#: what every tour does
TOUR: Final = (
    "The tour of a Kafka client: it creates a topic, describes it, produces with keys and headers, plain\n"
    "and compressed, reads all of it and deletes the topic. Of a ZooKeeper client: it creates nodes,\n"
    "changes data by version, watches, runs multis, uses access lists, resumes its session elsewhere, and\n"
    "deletes."
)
#: {another step of a tour: what it shows}
STEPS: Final = {
    "committed": "commits in a group",
    "coordinated": "reads with KIP-848's protocol",
    "measured": "looks offsets up by kind",
    "identified": "describes topics by id and in pieces",
    "located": "describes log folders",
    "watched": "describes producers",
    "governed": "asks for moves, elections, features and quotas",
    "grouped": "lists and describes groups",
    "reset": "resets a group to the beginning",
    "configured": "changes and shows settings",
    "grown": "adds partitions",
    "purged": "deletes records",
    "ungrouped": "deletes the group",
}
QUORUM_STEPS: Final = {
    "followed": "adds and removes persistent watches",
    "counted": "uses lifetimes, counts and reads in one request",
    "configured": "reads the members",
}

_PROTOCOLS = "Produces with every codec, consumes alone and in groups, with coordinators killed"
_CLIENTS: Final = (
    Tried("kafka-python", "3.0.12", "2026-11-26", f"{_PROTOCOLS}.", "tests/conformance/test_kafka_python.py"),
    Tried(
        *("confluent-kafka (librdkafka)", "2.16.1", "2026-11-26"),
        *(f"{_PROTOCOLS}; admin calls.", "tests/conformance/test_confluent_kafka.py"),
    ),
    Tried(
        *("kcat", "1.7.1", "2026-11-26", "Produces, consumes, lists, queries offsets."),
        "tests/conformance/test_kcat.py",
    ),
    Tried(
        *("Kafka's kafka-reassign-partitions, kafka-leader-election", "3.9.1", "2026-11-26"),
        *(
            "Plans, carries out, verifies and cancels moves; elects.",
            "tests/conformance/test_kafka_admin_tools.py",
        ),
    ),
    Tried(
        *("Kafka's kafka-consumer-groups, VerifiableConsumer", "3.9.1", "2026-11-26"),
        *(
            "Lists, describes, resets and deletes groups; consumes by both protocols.",
            "tests/conformance/test_kafka_group_tools.py",
        ),
    ),
    Tried(
        *("Kafka's kafka-delete-records, -log-dirs, -get-offsets, -transactions, -topics, -configs", "3.9.1"),
        *("2026-11-26", "Deletes records, lists sizes, offsets, producers, pages of topics and quotas."),
        "tests/conformance/test_kafka_log_tools.py",
    ),
    Tried(
        *("Spark's Kafka connector", "4.3.0", "2026-11-26", "Reads and writes as a Spark job."),
        "tests/pipeline/test_topics_connector.py",
    ),
    Tried(
        *("Kafka Connect, distributed, with exactly-once sources", "3.9.1", "2026-11-27"),
        *("Its file connectors, with a worker and a broker killed.", "tests/ecosystem/test_connect.py"),
    ),
    Tried(
        *("Kafka Streams, exactly_once_v2", "3.9.1", "2026-11-27"),
        *("Counts words and joins, with an instance and a broker killed.", "tests/ecosystem/test_streams.py"),
    ),
    Tried(
        *("Flink with its Kafka connector", "1.20.1, 3.4.0-1.20", "2026-11-27"),
        *("Copies exactly once, with a task manager and a broker killed.", "tests/ecosystem/test_flink.py"),
    ),
    Tried(
        *("Transactional producers of confluent-kafka and kafka-python", "2.16.1, 3.0.12", "2026-11-27"),
        *("Consume, produce and commit offsets.", "tests/ecosystem/test_transactional_producers.py"),
    ),
    Tried(
        *("kazoo", "2.11.0", "2026-11-26", "Its recipes, with leaders killed."),
        "tests/conformance/test_kazoo_recipes.py",
    ),
    Tried(
        *("Apache Curator", "5.9", "2026-11-26", "Its recipes, with the leader killed while all work."),
        "tests/conformance/test_java_curator.py",
    ),
    Tried(
        *("ZooKeeper's shell", "3.9.5", "2026-11-26", "Prints the same lines as on a real ZooKeeper."),
        "tests/conformance/test_java_shell.py",
    ),
    Tried(
        *("Spark's standalone masters", "4.3.0", "2026-11-26"),
        *("Elect a leader and fail over through the quorum.", "tests/conformance/test_spark_masters.py"),
    ),
)

#: Systems that ran on the quorum as they are, in place of ZooKeeper.
SYSTEMS: Final = (
    ("Apache Kafka in ZooKeeper mode", "3.9.1"),
    ("Apache HBase", "2.6.4"),
    ("Apache SolrCloud", "9.10.1"),
    ("Apache BookKeeper", "4.17.2"),
    ("Patroni", "4.1.5"),
    ("OpenStack tooz", "9.1.0"),
)
SYSTEMS_TRIED: Final = "2026-11"


def _sentences(client: Client, steps: dict[str, str]) -> str:
    words = [steps[step] for step in client.steps if step in steps]
    lists = [", ".join(words[at : at + 6]) for at in range(0, len(words), 6)]  # none is too long
    return " ".join(["The tour.", *(f"{each[0].upper()}{each[1:]}." for each in lists)])


def tried() -> list[Tried]:
    """All rows about clients and tools, in the page's order."""
    toured = [
        *((client, STEPS, "tests/conformance/test_client_tours.py") for client in QUICK.values()),
        *((client, STEPS, "tests/clients/test_tours.py") for client in SLOW.values()),
        *((client, QUORUM_STEPS, "tests/clients/test_tours.py") for client in QUORUM.values()),
    ]
    return [
        *_CLIENTS,
        *(
            Tried(client.name, client.version, TOURS_MADE, _sentences(client, steps), where)
            for client, steps, where in toured
        ),
    ]
