"""aiokafka's tour: the calls of its README, one line of JSON a step (tests/clients/tours.py says which)."""

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

RECORDS = 100


def say(step: str, **what: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps({"step": step, **what}) + "\n")


async def produce(bootstrap: str, topic: str) -> None:
    """Send the records, one half as they are and one compressed."""
    for half, codec in enumerate((None, "gzip")):
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=codec
        ) as producer:
            for number in range(half * RECORDS // 2, (half + 1) * RECORDS // 2):
                key, value = b"key %d" % number, b"value %d" % number
                await producer.send(topic, value, key, headers=[("number", b"%d" % number)])
    say("produced", records=RECORDS)


async def consume(bootstrap: str, topic: str, group: str) -> None:
    """Read all records as a member of a group, and commit them."""
    read: list[list[str]] = []
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        async for message in consumer:
            read.append([message.key.decode(), message.value.decode(), message.headers[0][1].decode()])
            if len(read) == RECORDS:
                break
        await consumer.commit()
    say("read", records=read)


async def purge(admin: AIOKafkaAdminClient, bootstrap: str, topic: str) -> None:
    """Delete what a partition holds."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        await admin.delete_records({partition: RecordsToDelete(before_offset=end)})
        start = (await consumer.beginning_offsets([partition]))[partition]
    say("purged", emptied=start == end and end > 0)


async def administer(admin: AIOKafkaAdminClient, topic: str, group: str) -> None:
    """Ask for groups and settings, change a setting and the number of partitions."""
    offsets = await admin.list_consumer_group_offsets(group)
    say("committed", offsets=sum(each.offset for each in offsets.values()))
    listed = group in {each[0] for each in await admin.list_consumer_groups()}
    described = (await admin.describe_consumer_groups([group]))[0]
    say("grouped", listed=listed, state=described.groups[0][2])
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})
    altered = (await admin.alter_configs([resource]))[0]
    assert altered.resources[0][0] == 0, for_code(altered.resources[0][0])
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": ""})
    shown: dict[str, str] = {}
    # another broker may answer, which hears of the change a moment later
    async with asyncio.timeout(10):
        while shown.get("retention.ms") != "3600000":
            settings = (await admin.describe_configs([asked]))[0].resources[0][4]
            shown = {name: value for name, value, *_ in settings}
    say("configured", **shown)
    await admin.create_partitions({topic: NewPartitions(4)})
    say("grown", partitions=4)


async def main(bootstrap: str, topic: str) -> None:
    """Make the tour."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        new = NewTopic(topic, num_partitions=3, replication_factor=3)
        made = await admin.create_topics([new])
        assert made.topic_errors[0][1] == 0, made
        again = await admin.create_topics([new])
        say("created", again=for_code(again.topic_errors[0][1]).__name__ == "TopicAlreadyExistsError")
        described = (await admin.describe_topics([topic]))[0]["partitions"]
        say("described", partitions=len(described), replicas=len(described[0]["replicas"]))
        assert len((await admin.describe_cluster())["brokers"]) == 3
        await produce(bootstrap, topic)
        await consume(bootstrap, topic, f"{topic}-group")
        await administer(admin, topic, f"{topic}-group")
        await purge(admin, bootstrap, topic)
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
        say("deleted")
    finally:
        await admin.close()


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
