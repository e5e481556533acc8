"""Actions through their dialogs in a real browser: leadership, snapshots, replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from playwright.sync_api import Locator, expect

from tests.browser.conftest import WAIT_S, Pages
from tests.support.broker_cluster import BrokerCluster

#: more than one fetch takes, so that a replica takes its time at a byte a second
RECORDS, RECORD = 30, b"x" * 100_000


@pytest.fixture(scope="module", autouse=True)
def topics(cluster: BrokerCluster) -> Iterator[None]:
    """Topics `moved` and `held` on brokers 1 and 2, the second one with three megabytes."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics(
        [NewTopic(name, -1, -1, replica_assignments={0: [1, 2]}) for name in ("moved", "held")]
    )
    with KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(RECORDS):
            producer.send("held", RECORD).get(WAIT_S)
    yield
    admin.delete_topics(["moved", "held"])
    admin.close()


def carry_out(pages: Pages, name: str, preview: str, **fields: str) -> None:
    """Press a button, fill its dialog, look at the preview, and confirm."""
    box = fill(pages, name, fields)
    expect(pages.get("preview")).to_contain_text(preview)
    box.get_by_role("button", name="Confirm").click()
    expect(box).to_have_count(0)


def fill(pages: Pages, name: str, fields: Mapping[str, str]) -> Locator:
    """Press a button, fill its dialog, and ask for the preview."""
    pages.press(name)
    box = pages.tab.locator("[role=dialog]")
    for label, value in fields.items():
        field = box.get_by_label(label)
        if field.evaluate("(each) => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    box.get_by_role("button", name="Preview").click()
    return box


def refuse(pages: Pages, name: str, said: str, **fields: str) -> None:
    """Fill a dialog with what its preview refuses, and leave it."""
    pages.expected = ("the server responded with a status of 400",)
    fill(pages, name, fields)
    expect(pages.tab.get_by_role("alert")).to_contain_text(said)
    expect(pages.tab.get_by_role("button", name="Confirm")).to_be_disabled()
    pages.tab.keyboard.press("Escape")


def partition(pages: Pages) -> Locator:
    return pages.get("partition", id=0)


def test_leadership_is_transferred(pages: Pages, cluster: BrokerCluster) -> None:
    pages.open()
    leader = cluster.nodes.leader()
    to = next(node_id for node_id in cluster.nodes.node_ids if node_id != leader)
    carry_out(pages, "Transfer leadership", f"Node {to} is to lead instead of node {leader}", To=str(to))
    expect(pages.tab.get_by_role("status")).to_contain_text(f"node {to} leads, in term")
    expect(pages.get("node", id=to, role="leader")).to_be_visible()


def test_a_snapshot_is_taken(pages: Pages) -> None:
    pages.open()
    carry_out(pages, "Take snapshot", "is to take a snapshot")
    expect(pages.tab.get_by_role("status")).to_contain_text("a snapshot is taken, up to log index")


def test_a_partition_is_reassigned_and_led_by_its_preferred_replica(pages: Pages) -> None:
    pages.open("#/topics/moved")
    expect(partition(pages)).to_have_attribute("data-isr", "1,2")
    pages.tab.get_by_role("button", name="Elect preferred").wait_for(state="detached")
    refuse(pages, "Reassign", "there is no live broker 9", Brokers="1,9")
    carry_out(pages, "Reassign", "moved-0 moves from brokers 1, 2 to 3, 1.", Brokers="3,1")
    expect(partition(pages)).to_have_attribute("data-isr", "1,3")
    carry_out(pages, "Elect preferred", "1 partition is not led by the first replica")
    expect(pages.tab.get_by_role("status")).to_have_text("1 of 1 partitions have their preferred leader")
    expect(partition(pages)).to_have_attribute("data-leader", "3")


def test_a_reassignment_is_cancelled(pages: Pages) -> None:
    pages.open("#/topics/held")
    carry_out(pages, "Reassign", "at 1 bytes a second", Brokers="1,3", Throttle="1")
    carry_out(pages, "Cancel reassignment", "Where 1 partition of held now move")
    expect(pages.tab.get_by_role("status")).to_have_text("1 reassignments of held are cancelled")
    expect(partition(pages)).to_have_attribute("data-isr", "1,2")
    expect(pages.tab.get_by_role("button", name="Cancel reassignment")).to_have_count(0)
    # What is left of it is found, and taken away.
    pages.open()
    carry_out(pages, "Remove throttle", "Brokers that throttle replication: 1, 2, 3.")
    expect(pages.tab.get_by_role("button", name="Remove throttle")).to_have_count(0)
