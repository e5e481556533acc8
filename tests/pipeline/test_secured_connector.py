"""Spark's own Kafka connector by SASL_SSL and SSL, against brokers with users and access lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.support.certificates import Authority
from tests.support.secured_brokers import ADMIN, MECHANISMS, SecuredBrokers

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    running = SecuredBrokers(Authority(tmp_path_factory.mktemp("pki") / "ours"))
    with running.cluster, running.cluster.shown():
        running.set_users()
        admin = AdminClient(running.confluent("SCRAM-SHA-512", ADMIN))
        rights = (AclOperation.READ, AclOperation.WRITE)
        entries = [
            AclBinding(
                *(ResourceType.TOPIC, "spark", ResourcePatternType.PREFIXED, "User:alice", "*"),
                *(operation, AclPermissionType.ALLOW),
            )
            for operation in rights
        ]
        for made in admin.create_acls(entries).values():
            made.result(DEADLINE_S)
        topics = [NewTopic(f"spark-{way}", 2, 1) for way in (*MECHANISMS, "SSL")]
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        yield running


def options(brokers: SecuredBrokers, way: str, user: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in brokers.java(way, user).items()}


#: the others are repeats
SOON = ("SCRAM-SHA-512", "SSL")


@pytest.mark.parametrize(
    "way",
    [*SOON, *(pytest.param(each, marks=pytest.mark.long) for each in MECHANISMS if each not in SOON)],
)
def test_the_connector_writes_and_reads(spark: SparkSession, brokers: SecuredBrokers, way: str) -> None:
    own = options(brokers, way, "alice")
    rows = spark.range(20).selectExpr("cast(id as string) as key", "concat('v', id) as value")
    rows.write.format("kafka").options(**own, topic=f"spark-{way}").save()
    read = spark.read.format("kafka").options(**own, subscribe=f"spark-{way}").load()
    assert {bytes(row.value) for row in read.select("value").collect()} == {
        b"v%d" % each for each in range(20)
    }


def test_the_connector_says_why_it_is_refused(spark: SparkSession, brokers: SecuredBrokers) -> None:
    own = {**options(brokers, "SCRAM-SHA-512", "bob"), "subscribe": "spark-PLAIN"}
    with pytest.raises(Py4JJavaError, match="TopicAuthorizationException: Topic authorization failed"):
        spark.read.format("kafka").options(**own).load().collect()
