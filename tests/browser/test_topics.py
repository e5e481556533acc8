"""Topics, partitions and groups in a real browser: sorted, read, changed, as they were."""

from __future__ import annotations

import itertools
import json
import threading
import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient
from playwright.sync_api import expect

from tests.browser.conftest import WAIT_S, Pages
from tests.support.broker_cluster import BrokerCluster
from tests.support.nodes import eventually

RECORDS = 30


@pytest.fixture(scope="module", autouse=True)
def times(cluster: BrokerCluster) -> list[int]:
    """Topic `orders` with 30 records, of which group `billing` has read 10; an empty one; one to delete.

    Returns the times of the records in ms, all of them different.
    """
    begun_ms = int(time.time() * 1000) - 1000 * RECORDS
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic("orders", 2, 3), NewTopic("quiet", 1, 1), NewTopic("doomed", 1, 1)])
    admin.close()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(RECORDS):
            value = b'{"order": %d, "mark": "\xe2\x80\xae"}' % number
            at_ms = begun_ms + 1000 * number
            producer.send("orders", value, b"k%d" % number, partition=0, timestamp_ms=at_ms).get(WAIT_S)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id="billing", enable_auto_commit=False
    )
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek(TopicPartition("orders", 0), 10)
    consumer.commit()
    consumer.close()
    return [begun_ms + 1000 * number for number in range(RECORDS)]


def test_topics_are_sorted_by_lag_and_searched(pages: Pages) -> None:
    tab = pages.open("#/topics?sort=lag")
    rows = pages.get("topic")
    expect(rows.first).to_have_attribute("data-name", "orders")
    expect(rows.first).to_have_attribute("data-lag", str(RECORDS - 10))
    expect(rows.first).to_have_attribute("data-status", "ok")
    tab.get_by_role("columnheader", name="Topic").get_by_role("button").click()
    expect(tab.locator("th[aria-sort=ascending]")).to_have_text("Topic")
    expect(rows.first).to_have_attribute("data-name", "doomed")
    tab.get_by_label("Search topics").fill("quie")
    expect(rows).to_have_count(1)
    expect(tab).to_have_url(f"{pages.url}#/topics?sort=name&search=quie")
    tab.get_by_label("Search topics").fill("no such")
    pages.wait("empty")


def test_a_topic_shows_partitions_settings_and_groups(pages: Pages) -> None:
    tab = pages.open("#/topics/orders")
    expect(pages.get("partition")).to_have_count(2)
    expect(pages.get("partition", id=0, isr="1,2,3")).to_be_visible()
    tab.get_by_role("tab", name="Groups").click()
    expect(pages.get("group", name="billing", lag=RECORDS - 10)).to_contain_text("≥")
    tab.set_viewport_size({"width": 400, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    tab.set_viewport_size({"width": 1280, "height": 860})
    tab.get_by_role("tab", name="Settings").click()
    expect(pages.get("setting", name="retention.ms", changed="false")).to_be_visible()
    pages.press("Change settings")
    box = tab.locator("[role=dialog]")
    box.get_by_label("Setting").select_option("retention.ms")
    # The value is that of the setting that was chosen.
    expect(box.get_by_label("Value")).to_have_value("604800000")
    box.get_by_label("Value").fill("a week")
    box.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("alert")).to_contain_text("Invalid value a week")
    pages.expected = ("the server responded with a status of 409",)
    box.get_by_label("Value").fill("86400000")
    box.get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_contain_text("becomes 86400000")
    box.get_by_role("button", name="Confirm").click()
    expect(pages.get("setting").first).to_have_attribute("data-name", "retention.ms")
    expect(pages.get("setting", name="retention.ms", changed="true")).to_contain_text("86400000")
    # Who had committed what is in znodes; where logs ended is not.
    zxid = tab.get_by_label("As of").get_attribute("max")
    pages.open(f"#/topics/orders?tab=groups&as_of={zxid}")
    expect(pages.get("group", name="billing")).to_contain_text("unknown")
    pages.open("#/topics/never", state="empty")


def test_records_are_read_from_the_address_a_time_and_filtered(pages: Pages, times: list[int]) -> None:
    tab = pages.open("#/topics/orders?tab=records&partition=0&offset=5")
    rows = pages.get("record")
    expect(rows).to_have_count(RECORDS - 5)
    first = pages.get("record", partition=0, offset=5)
    expect(first.locator("[data-testid=value]")).to_have_text(r'{"order": 5, "mark": "\u202e"}')
    expect(first.locator("[data-testid=key]")).to_have_text("k5")
    tab.get_by_label("Format").select_option("json")
    expect(first.locator("[data-testid=value]")).to_contain_text('"order": 5,\n')
    tab.get_by_label("Filter").fill('"order": 17')
    pages.press("Read")
    expect(rows).to_have_count(1)
    expect(rows).to_have_attribute("data-offset", "17")
    tab.get_by_label("Filter").fill("")
    tab.get_by_label("From time").fill(str(times[20]))
    pages.press("Read")
    expect(rows.first).to_have_attribute("data-offset", "20")
    expect(rows).to_have_count(RECORDS - 20)
    expect(tab).to_have_url(f"{pages.url}#/topics/orders?tab=records&partition=0&offset=20")
    tab.get_by_label("From time").fill("2020-01-31 12:00")
    pages.press("Read")
    expect(rows).to_have_count(RECORDS)
    tab.get_by_label("From time").fill("2100-01-31T12:00Z")
    pages.press("Read")
    expect(rows).to_have_count(0)
    tab.get_by_label("From time").fill("soon")
    pages.press("Read")
    expect(tab.get_by_text("time = 'soon' is no time")).to_be_visible()
    pages.expected = ("the server responded with a status of 400",)


def test_a_topic_is_deleted_by_its_name_and_stays_in_the_past(pages: Pages, zookeeper: KazooClient) -> None:
    zxid = zookeeper.exists("/brokers/topics/doomed").czxid
    tab = pages.open("#/topics/doomed")
    pages.press("Delete")
    box = tab.locator("[role=dialog]")
    box.get_by_role("button", name="Preview").click()
    expect(box.get_by_role("button", name="Confirm")).to_be_disabled()
    box.get_by_label("Type the name").fill("doomed")
    box.get_by_role("button", name="Confirm").click()
    expect(tab.locator("main[data-page=topics][data-state=ready]")).to_be_attached()
    expect(pages.get("topic", name="doomed")).to_have_count(0)
    pages.open(f"#/topics?as_of={zxid}")
    expect(pages.get("topic", name="doomed")).to_be_visible()
    expect(pages.get("topic", name="orders")).to_contain_text("unknown")


def test_a_topic_that_brokers_do_not_know_has_a_page_without_settings(
    pages: Pages, zookeeper: KazooClient
) -> None:
    # Its record cannot be read. So it is, too, while a topic is deleted, until the console hears of it.
    zookeeper.create("/brokers/topics/damaged", b"{")
    pages.open("#/topics/damaged?tab=settings")
    expect(pages.get("setting")).to_have_count(0)
    expect(pages.tab.locator("main .caption").first).to_contain_text("/brokers/topics/damaged")
    zookeeper.delete("/brokers/topics/damaged")
    pages.wait("empty")


def test_the_heat_map_moves_by_keys(pages: Pages) -> None:
    tab = pages.open("#/partitions?show=all")
    cells = int(pages.get("heatmap").get_attribute("data-cells") or "")
    assert cells >= 2 * 3 + 1
    canvas = pages.get("heatmap").locator("canvas")
    canvas.focus()
    expect(pages.get("cell")).to_contain_text("broker 1")
    first = pages.get("cell").inner_text()
    tab.keyboard.press("ArrowRight")
    expect(pages.get("cell")).not_to_have_text(first)
    tab.keyboard.press("End")
    expect(pages.get("cell")).to_contain_text("broker 3")
    tab.get_by_label("Show").select_option("attention")
    expect(tab.locator("main[data-state=empty], [data-testid=heatmap]")).to_be_attached()


def test_a_broker_that_is_killed_shows_in_topics_and_partitions(pages: Pages, cluster: BrokerCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic("struck", 6, 3)])
    pages.open("#/partitions?show=all")
    cluster.kill(2)
    pages.open("#/topics")
    expect(pages.get("topic", name="orders", status="under-replicated")).to_be_visible()
    pages.open("#/partitions")
    expect(pages.tab.get_by_label("Show")).to_have_value("attention")
    pages.open()
    expect(pages.get("broker", id=2, status="down")).to_be_visible()
    expect(pages.get("under-replicated")).not_to_have_attribute("data-value", "0")
    # What is found in each partition does not push nodes and brokers out of sight.
    expect(pages.get("folded")).to_contain_text("struck-")
    expect(pages.tab.locator(".findings > li").nth(6)).to_have_count(0)
    cluster.start_broker(2)
    cluster.wait_ready(2)
    expect(pages.get("under-replicated", value=0)).to_be_visible()
    admin.delete_topics(["struck"])
    admin.close()
    pages.expected = ("the server responded with a status of 503",)


def test_offsets_of_a_group_are_reset_with_a_preview(pages: Pages) -> None:
    tab = pages.open("#/groups")
    expect(pages.get("group", name="billing")).to_have_attribute("data-status", "Empty")
    pages.open("#/groups/billing")
    offset = pages.get("offset", topic="orders", partition=0)
    expect(offset).to_have_attribute("data-lag", str(RECORDS - 10))
    pages.press("Reset offsets")
    box = tab.locator("[role=dialog]")
    box.get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_contain_text("orders0100")
    box.get_by_role("button", name="Confirm").click()
    expect(tab.get_by_role("status")).to_have_text("1 offsets of group billing are reset")
    expect(offset).to_have_attribute("data-lag", str(RECORDS))
    pages.press("Reset offsets")
    box.get_by_label("Topic").select_option("orders")
    box.get_by_label("Partitions").fill("0")
    box.locator("#dialog-to").select_option("shift")
    box.locator("#dialog-shift").fill("x")
    box.get_by_role("button", name="Preview").click()
    expect(box.get_by_role("alert")).to_contain_text("value = 'x' is no number of records")
    box.locator("#dialog-shift").fill("7")
    box.get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_contain_text("orders007+7")
    box.locator("#dialog-to").select_option("time")
    box.locator("#dialog-time").fill("2020-01-31 12:00")
    box.get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_contain_text("to the first record at or after 2020-01-31T")
    tab.keyboard.press("Escape")
    pages.open("#/groups/nobody", state="empty")
    pages.expected = ("the server responded with a status of 400",)


def test_rates_follow_what_is_written_and_read(pages: Pages, cluster: BrokerCluster) -> None:
    """Somebody writes and commits for as long as the page is looked at."""
    done = threading.Event()
    place = TopicPartition("quiet", 0)

    def write() -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id="quick", enable_auto_commit=False
        )
        consumer.assign([place])
        with KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
            while not done.is_set():
                end = producer.send("quiet", b"x" * 1000).get(WAIT_S).offset + 1
                consumer.commit({place: OffsetAndMetadata(end, "", -1)})
        consumer.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        pages.open()
        expect(pages.get("busy", name="quiet")).to_contain_text("/s")
        for name in ("records-in", "records-out"):
            expect(pages.get(name)).not_to_have_attribute("data-value", "0")
        expect(pages.tab.get_by_text("coordinator", exact=True)).to_have_count(1)
        pages.open("#/topics/quiet")
        expect(pages.tab.get_by_text("records in (")).to_contain_text("KiB/s")
    finally:
        done.set()
        writer.join(WAIT_S)


def test_a_consumer_is_a_member_of_its_group(pages: Pages, cluster: BrokerCluster) -> None:
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap, group_id="billing", client_id="reader"
    )
    eventually(lambda: consumer.poll(200) or consumer.assignment(), WAIT_S, "the group is joined")
    pages.open("#/groups/billing")
    expect(pages.get("member")).to_contain_text("reader")
    expect(pages.get("member")).to_contain_text("orders-0")
    consumer.close()


def test_ten_thousand_partitions_scroll_without_a_long_frame(pages: Pages) -> None:
    """The answer is made here: what is judged is the page, by its thread's own clock of CPU time."""
    rows = [
        [number // 100, number % 100, [1, 2, 3], 1 + number % 3, [1, 2, 3], False] for number in range(10_000)
    ]
    answer = json.dumps({"topics": [f"topic-{number:03d}" for number in range(100)], "partitions": rows})
    pages.tab.route("**/api/partitions*", lambda route: route.fulfill(json=json.loads(answer)))
    pages.open("#/partitions?show=all")
    expect(pages.get("heatmap", cells=30_000)).to_be_visible()
    devtools = pages.tab.context.new_cdp_session(pages.tab)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_s() -> float:
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    spent = [spent_s()]
    for _ in range(60):
        pages.tab.evaluate(
            """async () => {
              document.querySelector("[data-testid=heatmap]").scrollTop += 97;
              await new Promise(requestAnimationFrame);
            }"""
        )
        spent.append(spent_s())
    assert spent[-1] > spent[0], "the clock runs"
    longest_s = max(after - before for before, after in itertools.pairwise(spent))
    assert longest_s < 0.1, f"a frame took {longest_s * 1000:.0f} ms of CPU"
