"""Data that a release has written, kept for all later ones to read: three nodes and a broker.

    python -m tests.support.release_data tests/fixtures/release-0.1

writes it with this checkout's build: the data directories (data.tar.xz), a throw-away peer secret, and what
this build reads of them (seen.json). Run it once per release, in a new folder; a folder that is there is
never written again. The content is fixed; ids, times and offsets of files are not. `started` runs a copy with
the build of this checkout, and `look` reads all of it.

Source: docs/operate/upgrade.md, "Data of earlier releases".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from quorum.client import Client
from quorum.core.codes import TTL_MAX_MS
from tests.support.broker_cluster import SHORT_SESSIONS, BrokerCluster
from tests.support.broker_records import CODECS, quiet, reading
from tests.support.nodes import QuorateNodes, eventually

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
DEADLINE_S: Final = 60.0
ROOT: Final = "/release"
GROUP: Final = "release-readers"
#: held by a session that was not closed; it ends on the first start
EPHEMERAL: Final = f"{ROOT}/held"
_FIRST_MS: Final = 1_700_000_000_000
_KIB: Final = 1024
_NODE_SETTINGS: Final[dict[str, dict[str, object]]] = {
    **{name: dict(values) for name, values in SHORT_SESSIONS.items()},
    "raft": {
        "segment_bytes_max": 64 * _KIB,
        "batch_bytes_max": 64 * _KIB,
        "log_cache_bytes_max": 64 * _KIB,
    },
    # As old as the data are, nothing of them may go for its age.
    "changelog": {"retention_age_ms": 864_000_000_000},
}
_NODE_SETTINGS["limits"]["frame_bytes_max"] = 32 * _KIB
_BROKER_SETTINGS: Final[dict[str, dict[str, object]]] = {
    "limits": {"segment_bytes_min": 4 * _KIB},
    "cleaner": {"log_cleaner_backoff_ms": 200},
    "groups": {"offsets_retention_minutes": 2**31 - 1, "group_initial_rebalance_delay_ms": 0},
    "transactions": {"transactional_id_expiration_ms": 2**31 - 1},
}
_KEPT: Final = {"retention.ms": "-1", "segment.bytes": str(8 * _KIB)}
TOPICS: Final[dict[str, dict[str, str]]] = {
    "compacted": {**_KEPT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "compressed": _KEPT,
    "transactions": _KEPT,
    "cut": _KEPT,
}
TRANSACTIONS: Final = 6
#: what it exports, its types do not say
_KAFKA: Final[Any] = kafka_admin


@contextlib.contextmanager
def cluster_in(folder: Path, secret: str, *, founded: bool) -> Iterator[BrokerCluster]:
    """Run three nodes and a broker on data directories in a folder.

    Args:
        folder: where they are, or will be.
        secret: the peer secret.
        founded: whether they are there.
    """
    nodes = QuorateNodes(nodes=3, settings=_NODE_SETTINGS, folder=folder, secret=secret)
    nodes._formatted = dict.fromkeys(nodes.node_ids, founded)
    with BrokerCluster(brokers=1, settings=_BROKER_SETTINGS, folder=folder, quorum=nodes) as cluster:
        yield cluster


@contextlib.contextmanager
def started(release: Path, folder: Path) -> Iterator[BrokerCluster]:
    """Run this checkout's build on a copy of a release's data."""
    with tarfile.open(release / "data.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    secret = (release / "peer.secret").read_text().strip()
    with cluster_in(folder, secret, founded=True) as cluster:
        yield cluster


# --- what is written --------------------------------------------------------------------------------------


def write_znodes(cluster: BrokerCluster, begin: int, end: int) -> None:
    """Write znodes of every kind, numbered from `begin` to `end`."""
    client = cluster.zookeeper
    client.ensure_path(f"{ROOT}/many")
    for number in range(begin, end):
        path = client.create(f"{ROOT}/many/node-", b"%d" % number * (number % 40), sequence=True)
        if number % 3 == 0:
            client.set(path, b"again")
        if number % 7 == 0:
            client.delete(path)
    if not begin:
        client.create(f"{ROOT}/empty", b"")
        client.create(f"{ROOT}/large", bytes(range(256)) * 100)
        client.create(f"{ROOT}/\N{GREEK SMALL LETTER PI}", "\N{GREEK SMALL LETTER PI}".encode())
        acl = [make_digest_acl("release", "throw-away", all=True), *OPEN_ACL_UNSAFE]
        client.create(f"{ROOT}/guarded", b"by a list", acl=acl)
        asyncio.run(_write_lifetimes(cluster))
        client.create(f"{ROOT}/quota", b"")
        client.ensure_path(f"/zookeeper/quota{ROOT}/quota")
        client.create(f"/zookeeper/quota{ROOT}/quota/zookeeper_limits", b"count=10,bytes=1000")
    transaction = client.transaction()
    transaction.create(f"{ROOT}/multi-{begin}", b"one of two")
    transaction.set_data(f"{ROOT}/many", b"two of two")
    assert not [each for each in transaction.commit() if isinstance(each, Exception)]


async def _write_lifetimes(cluster: BrokerCluster) -> None:
    async with Client(cluster.nodes.hosts) as client:
        await client.create_container(f"{ROOT}/container")
        await client.create(f"{ROOT}/container/child", None)
        await client.create_ttl(f"{ROOT}/lives-long", b"for 34 years", TTL_MAX_MS)


def write_records(cluster: BrokerCluster) -> None:
    """Write topics that are compacted, compressed by every codec, in transactions, and cut at their start."""
    bootstrap = cluster.bootstrap
    admin = AdminClient(quiet(bootstrap))
    made = admin.create_topics([NewTopic(name, 2, 1, config=each) for name, each in TOPICS.items()])
    for future in made.values():
        future.result(DEADLINE_S)
    for number, codec in enumerate(CODECS):
        producer = Producer({**quiet(bootstrap), "compression.type": codec, "linger.ms": 50})
        for each in range(40):
            key, at_ms = b"%s-%d" % (codec.encode(), each), _FIRST_MS + 100 * number + each
            producer.produce(
                "compressed", b"%d " % each * 40, key, each % 2, timestamp=at_ms, headers=[("codec", codec)]
            )
        assert producer.flush(DEADLINE_S) == 0
    producer = Producer(quiet(bootstrap))
    for each in range(600):
        value = None if each % 50 == 49 else b"%d:" % each + bytes(100)
        producer.produce("compacted", value, b"key-%d" % (each % 25), each % 2, timestamp=_FIRST_MS + each)
        producer.produce("cut", b"%d" % each, b"", each % 2, timestamp=_FIRST_MS + each)
        if each % 50 == 0:
            assert producer.flush(DEADLINE_S) == 0
    assert producer.flush(DEADLINE_S) == 0
    cut = admin.delete_records([TopicPartition("cut", each, 100 + each) for each in (0, 1)])
    for deleted in cut.values():
        deleted.result(DEADLINE_S)
    _write_transactions(bootstrap)
    offsets = [TopicPartition("compressed", 0, 7, "noted"), TopicPartition("compressed", 1, 70)]
    wanted = ConsumerGroupTopicPartitions(GROUP, offsets)
    for committed in admin.alter_consumer_group_offsets([wanted]).values():
        committed.result(DEADLINE_S)


def _write_transactions(bootstrap: str) -> None:
    producer = Producer({**quiet(bootstrap), "transactional.id": "release"})
    producer.init_transactions(DEADLINE_S)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for each in range(5):
            producer.produce("transactions", b"%d.%d" % (number, each), b"%d" % number, each % 2)
        producer.flush(DEADLINE_S)
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)


def _is_compacted(cluster: BrokerCluster) -> bool:
    return cluster.metric(1, "quorate_broker_cleaner_bytes_written_total") > 0 and (
        cluster.metric(1, "quorate_broker_cleaner_max_dirty_ratio") <= 0.1
    )


# --- what is read -----------------------------------------------------------------------------------------


def look(cluster: BrokerCluster) -> dict[str, Any]:
    """Read everything that the release has written: the same from every build that reads its data."""
    return {
        "znodes": dict(_znodes(cluster.zookeeper, ROOT)),
        "quota": dict(_znodes(cluster.zookeeper, f"/zookeeper/quota{ROOT}")),
        "records": {name: _records(cluster, name, "read_uncommitted") for name in TOPICS},
        "committed": _records(cluster, "transactions", "read_committed"),
        "offsets": _offsets(cluster.bootstrap),
        "group": _group(cluster.bootstrap),
        "settings": _settings(cluster.bootstrap),
    }


def history(cluster: BrokerCluster, node_id: int, last_zxid: int) -> list[str]:
    """Return a line per transaction that a node's change log has, up to one."""
    lines: list[str] = []
    zxid = 0
    while zxid <= last_zxid:
        code, body = cluster.nodes.get(node_id, f"/v1/changelog?from_zxid={zxid}")
        assert code == 200, body[:500]
        rows = [json.loads(line) for line in body.splitlines()]
        for row in rows:
            changes = "; ".join(
                f"{each['op']} {each['path']} {each['version']} {len(each['after'] or '')}"
                for each in row["changes"]
            )
            lines.append(f"{row['zxid']} {row['ts']} {row['session_id']} {changes}")
        zxid = rows[-1]["zxid"] + 1
    return lines[: last_zxid + 1]


def _znodes(client: KazooClient, path: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield (path, [data, ACL, Stat]) of a znode and all below it, but for what a session holds."""
    data, stat = client.get(path)
    if not stat.ephemeralOwner:
        acls = [[each.perms, each.id.scheme, each.id.id] for each in client.get_acls(path)[0]]
        held = path == ROOT
        # The root of it has a child less once the session has ended.
        yield path, [_text(data), acls, [*stat][:4] if held else [*stat]]
    for name in sorted(client.get_children(path)):
        with contextlib.suppress(NoNodeError):
            yield from _znodes(client, f"{path}/{name}")


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _records(cluster: BrokerCluster, topic: str, isolation: str) -> list[list[Any]]:
    """Return [partition, offset, timestamp, key, value, headers] of every record that a reader gets."""
    consumer = Consumer(
        {**reading(cluster.bootstrap), "isolation.level": isolation, "enable.partition.eof": True}
    )
    found: list[list[Any]] = []
    ends = 0
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in (0, 1)])
        consumer.assign(
            [
                TopicPartition(topic, each, consumer.get_watermark_offsets(TopicPartition(topic, each))[0])
                for each in (0, 1)
            ]
        )
        while ends < 2:
            message: Any = consumer.poll(DEADLINE_S)
            assert message is not None, f"{topic} does not end"
            if message.error():
                ends += 1
                continue
            headers = [[name, _text(value)] for name, value in message.headers() or ()]
            place = [message.partition(), message.offset(), message.timestamp()[1]]
            found.append([*place, _text(message.key()), _text(message.value()), headers])
    finally:
        consumer.close()
    return sorted(found)


def _offsets(bootstrap: str) -> dict[str, list[int]]:
    """Return {topic-partition: [first offset, last stable offset, high watermark]}."""
    admin, specs = AdminClient(quiet(bootstrap)), _KAFKA.OffsetSpec
    found: dict[str, list[int]] = {}
    for name in TOPICS:
        for partition in (0, 1):
            key = TopicPartition(name, partition)
            found[f"{name}-{partition}"] = [
                admin.list_offsets({key: spec}, isolation_level=level)[key].result(DEADLINE_S).offset
                for spec, level in (
                    (specs.earliest(), IsolationLevel.READ_UNCOMMITTED),
                    (specs.latest(), IsolationLevel.READ_COMMITTED),
                    (specs.latest(), IsolationLevel.READ_UNCOMMITTED),
                )
            ]
    return found


def _group(bootstrap: str) -> list[list[Any]]:
    admin = AdminClient(quiet(bootstrap))

    def asked() -> Any:
        try:
            future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP]
            return future.result(DEADLINE_S)
        except KafkaException:
            # The coordinator of a broker that has just started is not there yet.
            return None

    rows = eventually(asked, DEADLINE_S, "the group's offsets").topic_partitions
    return sorted([each.topic, each.partition, each.offset, each.metadata] for each in rows)


def _settings(bootstrap: str) -> dict[str, dict[str, str]]:
    admin = AdminClient(quiet(bootstrap))
    asked = admin.describe_configs(
        [_KAFKA.ConfigResource(_KAFKA.ResourceType.TOPIC, name) for name in TOPICS]
    )
    found = {}
    for resource, future in asked.items():
        rows = future.result(DEADLINE_S).values()
        found[resource.name] = {row.name: row.value for row in rows if row.name in TOPICS[resource.name]}
    return found


# --- a release --------------------------------------------------------------------------------------------


def make(release: Path) -> None:
    """Write the data of this checkout's build into a new folder."""
    release.mkdir(parents=True)
    secret = secrets.token_hex(16)
    (release / "peer.secret").write_text(f"{secret}\n")
    with tempfile.TemporaryDirectory(prefix="quorate-release-") as name:
        folder = Path(name)
        holder: KazooClient | None = None
        with cluster_in(folder, secret, founded=False) as cluster:
            write_znodes(cluster, 0, 60)
            write_records(cluster)
            for node_id in cluster.nodes.node_ids:
                cluster.nodes.take_snapshot(node_id)
            write_znodes(cluster, 60, 120)
            holder = KazooClient(cluster.nodes.hosts, timeout=2)
            holder.start(DEADLINE_S)
            holder.create(EPHEMERAL, b"until its session ends", ephemeral=True)
            eventually(partial(_is_compacted, cluster), DEADLINE_S, "the topic is compacted")
            seen = look(cluster)
            last_zxid = min(int(cluster.nodes.status(each)["zxid"]) for each in cluster.nodes.node_ids)
            seen["history"] = history(cluster, 1, last_zxid)
            # The broker leaves its session and says goodbye; nodes stop one by one, as in an update.
            cluster.stop(1)
            for node_id in cluster.nodes.node_ids:
                cluster.nodes.stop(node_id)
            holder.stop()
        (release / "seen.json").write_text(json.dumps(seen, indent=0, sort_keys=True) + "\n")
        _pack(folder, release / "data.tar.xz")


def _pack(folder: Path, path: Path) -> None:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if member.name.endswith("/lock") else member

    with tarfile.open(path, "w:xz") as archive:
        for data in sorted(folder.glob("*/data")):
            archive.add(data, str(data.relative_to(folder)), filter=plain)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
