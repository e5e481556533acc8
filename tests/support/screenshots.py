"""Makes the pictures of the console: `python -m tests.support.screenshots [FOLDER]`.

Without FOLDER the two of README.md, docs/console-*.png; with it every page in both colour schemes, to be
looked at before a release. The cluster is alive: topics, groups that lag, a broker that came back, and in all
but the first of README's one that is down.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient
from playwright.sync_api import Page, sync_playwright

from quorum.console.server import ConsoleOptions, serving
from quorum.local import in_thread
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster

DOCS = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDTH, HEIGHT = 1280, 900
WAIT_S = 60.0
#: {topic: (partitions, records)}
TOPICS = {
    "orders": (12, 4_000),
    "payments": (6, 1_500),
    "shipments": (6, 800),
    "page-views": (24, 6_000),
    "inventory": (3, 300),
    "audit": (1, 120),
}
#: {(group, topic): what part of the records it has read}
GROUPS = {
    ("billing", "orders"): 0.7,
    ("billing", "payments"): 1.0,
    ("warehouse", "shipments"): 0.9,
    ("search", "page-views"): 0.2,
    ("reports", "inventory"): 1.0,
}


class Shot(NamedTuple):
    """One picture.

    Attributes:
        name: of its file, without .png.
        address: of the page.
        scheme: light or dark.
        verdict: what the page is to say.
    """

    name: str
    address: str
    scheme: Literal["light", "dark"]
    #: what the verdict is about; "": all is well
    check: str = "broker-down"


IN_README = (
    Shot("console-overview", "#/overview", "light", ""),
    Shot("console-topics", "#/topics?sort=lag", "dark"),
)
PAGES = {
    "overview": "#/overview",
    "topics": "#/topics?sort=lag",
    "topic": "#/topics/orders",
    "settings": "#/topics/orders?tab=settings",
    "records": "#/topics/orders?tab=records&partition=0&offset=0",
    "partitions": "#/partitions?show=all",
    "attention": "#/partitions",
    "groups": "#/groups",
    "group": "#/groups/billing",
    "znodes": "#/znodes?path=/brokers/topics/orders",
    "history": "#/znodes?path=/config/demo&tab=history",
    "timeline": "#/timeline",
    "runs": "#/runs",
}


@contextmanager
def busy_cluster() -> Iterator[BrokerCluster]:
    """Yield a cluster that has something to show."""
    with BrokerCluster(brokers=3, nodes=3, session_timeout_ms=SHORT_SESSION_MS) as cluster:
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        admin.create_topics([NewTopic(name, count, 3) for name, (count, _) in TOPICS.items()])
        admin.close()
        with KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=20) as producer:
            for topic, (partitions, records) in TOPICS.items():
                for number in range(records):
                    value = b'{"id": %d, "customer": "c-%d", "total": %d}' % (number, number % 97, number * 7)
                    producer.send(topic, value, key=b"k%d" % number, partition=number % partitions)
        _commit(cluster)
        client = KazooClient(cluster.nodes.hosts)
        client.start(WAIT_S)
        client.create("/config/demo", b'{"limit": 10}', makepath=True)
        for limit in (20, 30):
            client.set("/config/demo", b'{"limit": %d}' % limit)
        client.stop()
        client.close()
        cluster.kill(2)
        cluster.start_broker(2)
        cluster.wait_ready(2)
        elect = [sys.executable, "-m", "quorum", "topics", "elect", "--bootstrap", cluster.bootstrap]
        subprocess.run(elect, check=True, stdout=subprocess.DEVNULL)
        yield cluster


def _commit(cluster: BrokerCluster) -> None:
    """Let the groups have read their part."""
    for (group, topic), part in GROUPS.items():
        consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False
        )
        partitions = [TopicPartition(topic, number) for number in range(TOPICS[topic][0])]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, int(ends[partition] * part))
        consumer.commit()
        consumer.close()


def take(page: Page, url: str, shot: Shot, folder: Path) -> None:
    """Take one picture, once the page has all that it shows."""
    page.set_default_timeout(WAIT_S * 1000)
    page.goto(url + shot.address)
    page.locator("main:is([data-state=ready], [data-state=empty])").wait_for()
    page.locator(f"[data-testid=verdict][data-check='{shot.check}']").wait_for()
    if "topics" in shot.name:
        status = "under-replicated" if shot.check else "ok"
        page.locator(f"[data-testid=topic][data-status={status}]:not([data-lag='0'])").first.wait_for()
        page.locator("[data-testid=topic]", has_text="B/s").first.wait_for()
    page.screenshot(path=folder / f"{shot.name}.png")


def main(words: list[str]) -> int:
    """Take them all."""
    folder = Path(words[0]) if words else DOCS
    folder.mkdir(parents=True, exist_ok=True)
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    both = [Shot(f"{name}-{scheme}", at, scheme) for name, at in PAGES.items() for scheme in schemes]
    path = shutil.which("chromium")
    assert path is not None, "no chromium on the PATH: make chromium"
    with busy_cluster() as cluster, tempfile.TemporaryDirectory() as results:
        admin = tuple(cluster.nodes.admin_url(node_id) for node_id in cluster.nodes.node_ids)
        options = ConsoleOptions(admin, port=0, results=Path(results))
        with in_thread(lambda: serving(options), "console") as (console, _), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for shot in both if words else IN_README:
                if shot.check and cluster.running(3):
                    cluster.kill(3)
                context = browser.new_context(
                    viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=shot.scheme
                )
                take(context.new_page(), console.url, shot, folder)
                context.close()
                sys.stdout.write(f"{folder / shot.name}.png\n")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
