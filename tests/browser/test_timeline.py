"""The timeline in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Pages
from tests.support.broker_cluster import BrokerCluster


def test_a_broker_that_is_killed_and_comes_back_is_in_the_timeline(
    pages: Pages, cluster: BrokerCluster
) -> None:
    tab = pages.open("#/timeline")
    ups = pages.get("event", kind="broker-up")
    downs = pages.get("event", kind="broker-down")
    expect(ups.first).to_be_visible()
    ups_before, downs_before = ups.count(), downs.count()
    cluster.kill(3)
    expect(downs).to_have_count(downs_before + 1)
    cluster.start_broker(3)
    cluster.wait_ready(3)
    expect(ups).to_have_count(ups_before + 1)
    first = ups.last
    zxid = first.get_attribute("data-zxid")
    first.get_by_role("button").click()
    expect(tab).to_have_url(re.compile(f"as_of={zxid}"))
    expect(tab.locator(f"main[data-as-of='{zxid}']")).to_be_attached()
    expect(ups).to_have_count(1)


def test_an_election_is_in_the_timeline(pages: Pages, cluster: BrokerCluster) -> None:
    pages.open("#/timeline")
    elections = pages.get("event", kind="election")
    before = elections.count()
    leader = cluster.nodes.leader()
    cluster.nodes.kill(leader)
    expect(elections).to_have_count(before + 1)
    expect(elections.first).to_contain_text("leads, term")
    cluster.nodes.start_node(leader)
    cluster.nodes.wait_ready(leader)
