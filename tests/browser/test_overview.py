"""The frame and the overview in a real browser: the verdict follows the cluster while somebody watches."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, expect

from quorum.console.server import ConsoleOptions, serving
from quorum.local import in_thread
from tests.browser.conftest import WAIT_S, Pages
from tests.support.broker_cluster import BrokerCluster
from tests.support.nodes import eventually


def test_the_overview_shows_nodes_brokers_and_verdict(pages: Pages, cluster: BrokerCluster) -> None:
    tab = pages.open()
    expect(tab.locator("main")).to_have_attribute("data-page", "overview")
    expect(pages.get("verdict", verdict="healthy", check="")).to_have_text("healthy")
    for node_id in cluster.nodes.node_ids:
        expect(pages.get("node", id=node_id)).to_be_visible()
    expect(pages.get("node", role="leader")).to_have_count(1)
    expect(pages.get("broker", status="up")).to_have_count(3)
    for name in ("offline", "under-replicated", "not-preferred"):
        expect(pages.get(name)).to_have_attribute("data-value", "0")
    links = tab.get_by_role("navigation", name="Main").get_by_role("link")
    for index in range(links.count()):
        links.nth(index).click()
        expect(tab.locator("main[data-state=ready], main[data-state=empty]")).to_be_attached()


def test_both_colour_schemes_and_a_narrow_screen_pass_axe(browser: Browser, url: str) -> None:
    for width in (1280, 400):
        context = browser.new_context(color_scheme="dark", viewport={"width": width, "height": 800})
        pages = Pages(context.new_page(), url)
        for address in (
            "overview",
            "topics",
            "partitions",
            "groups",
            "znodes?path=/brokers",
            "timeline",
            "runs",
        ):
            tab = pages.tab
            tab.goto(f"{url}#/{address}")
            page = address.partition("?")[0]
            view = tab.locator(f"main[data-page={page}]:is([data-state=ready], [data-state=empty])")
            expect(view).to_be_attached()
            pages.check()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, address
            expect(tab.locator("nav[aria-label=Main] a[aria-current]")).to_be_in_viewport(ratio=1)
        context.close()


def test_a_leader_that_is_killed_is_in_the_verdict_at_once(pages: Pages, cluster: BrokerCluster) -> None:
    pages.open()
    expect(pages.get("verdict", verdict="healthy")).to_be_visible()
    leader = cluster.nodes.leader()
    cluster.nodes.kill(leader)
    expect(pages.get("node", id=leader, role="unreachable")).to_be_visible()
    expect(pages.get("verdict", check="node-down")).to_be_visible()
    cluster.nodes.start_node(leader)
    expect(pages.get("verdict", verdict="healthy")).to_be_visible()


def test_without_a_majority_pages_say_so(pages: Pages, cluster: BrokerCluster) -> None:
    pages.open("#/znodes?path=/brokers")
    first, second, _ = cluster.nodes.node_ids
    cluster.nodes.kill(first)
    cluster.nodes.kill(second)
    pages.wait("no-quorum")
    expect(pages.get("verdict", check="no-quorum")).to_be_visible()
    expect(pages.get("znode", path="/brokers/ids")).to_be_visible()
    cluster.nodes.start_node(first)
    cluster.nodes.start_node(second)
    pages.wait("ready")
    expect(pages.get("verdict", verdict="healthy")).to_be_visible(timeout=40_000)
    pages.expected = ("the server responded with a status of 503",)


def test_a_page_whose_console_ends_is_stale_and_keeps_its_content(
    browser: Browser, options: ConsoleOptions
) -> None:
    context = browser.new_context()
    with in_thread(lambda: serving(options), "console") as (console, _):
        pages = Pages(context.new_page(), console.url)
        pages.open()
    pages.wait("stale")
    expect(pages.get("node")).to_have_count(3)
    context.close()


def test_tabs_of_a_browser_share_one_event_stream(browser: Browser, options: ConsoleOptions) -> None:
    def watching(url: str) -> int:
        with urllib.request.urlopen(f"{url}livez") as answer:
            return int(json.load(answer)["watching"])

    with in_thread(lambda: serving(options), "console") as (console, _):
        context, other = browser.new_context(), browser.new_context()
        tabs = [Pages(context.new_page(), console.url) for _ in range(3)]
        for each in tabs:
            each.open()
        assert watching(console.url) == 1
        stranger = Pages(other.new_page(), console.url)
        stranger.open()
        assert watching(console.url) == 2
        # The stream outlives the tab that began it, and ends with the last one.
        tabs[0].tab.close()
        tabs[1].open("#/znodes?path=/brokers")
        assert watching(console.url) == 2
        other.close()
        eventually(lambda: watching(console.url) == 1, WAIT_S, "the stream of the other browser ends")
        context.close()
        eventually(lambda: watching(console.url) == 0, WAIT_S, "the last stream ends")


def test_runs_show_what_was_concluded_and_when_it_happened(
    browser: Browser, options: ConsoleOptions, tmp_path: Path
) -> None:
    bar = {"lane": "broker 1", "kind": "registered", "from_ms": 5, "until_ms": 9, "label": "generation 4"}
    job = {"job": "flapping", "began_ms": 1000, "ended_ms": 3500, "finding": False, "rows": 1, "bars": [bar]}
    job |= {"columns": ["broker", "bounces"], "first_rows": [["1", "0"]]}
    fault = {"nemesis": "kill", "target": "node-1", "started_ns": 2, "stopped_ns": 3}
    run = {"seed": 7, "workloads": ["bank"], "began_ns": 1, "ended_ns": 10**10, "faults": [fault]}
    check = {"check": "total", "state": "bad", "judged": 7, "problems": ["it is 99"]}
    files = {
        "z/run.json": run,
        "z/verdicts.json": {"failed": True, "missing": [], "checks": [check]},
        "y/_job.json": job,
        "x/run.json": run,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    context = browser.new_context()
    with in_thread(lambda: serving(replace(options, results=tmp_path)), "console") as (console, _):
        pages = Pages(context.new_page(), console.url)
        pages.open("#/runs")
        expect(pages.get("check", name="total", state="bad")).to_contain_text("it is 99")
        expect(pages.get("run", name="x")).to_contain_text("no verdicts")
        pages.get("run", name="y").get_by_role("button").click()
        expect(pages.get("row")).to_have_text("10")
        expect(pages.get("bars")).to_contain_text("broker 1")
        pages.check()
    context.close()
