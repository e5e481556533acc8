"""A live cluster, a console over it, and a real browser that looks at its pages.

A page that logs an error, or in which axe finds something, fails its test.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from kazoo.client import KazooClient
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from quorum.console.server import ConsoleOptions, serving
from quorum.local import in_thread
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster

WAIT_MS = 20_000
WAIT_S = 30.0


@pytest.fixture(scope="session")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(brokers=3, nodes=3, session_timeout_ms=SHORT_SESSION_MS) as running:
        yield running


@pytest.fixture(scope="session")
def options(cluster: BrokerCluster) -> ConsoleOptions:
    return ConsoleOptions(
        tuple(cluster.nodes.admin_url(node_id) for node_id in cluster.nodes.node_ids), port=0
    )


@pytest.fixture(scope="session")
def url(options: ConsoleOptions) -> Iterator[str]:
    with in_thread(lambda: serving(options), "console") as (console, _):
        yield console.url


@pytest.fixture(scope="session")
def zookeeper(cluster: BrokerCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.nodes.hosts)
    client.start(WAIT_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "no chromium on the PATH: make chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Pages:
    """One tab of a browser with the console in it."""

    def __init__(self, tab: Page, url: str) -> None:
        self.tab = tab
        self.url = url
        #: that the page logged
        self.errors: list[str] = []
        #: that a test expects, as parts of them
        self.expected: tuple[str, ...] = ()
        tab.set_default_timeout(WAIT_MS)
        tab.on("console", self._logged)
        tab.on("pageerror", lambda error: self.errors.append(str(error)))

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, address: str = "", state: str = "ready") -> Page:
        """Load an address of the console, and wait for a state of its view."""
        self.tab.goto("about:blank")
        self.tab.goto(self.url + address)
        self.wait(state)
        return self.tab

    def wait(self, state: str) -> Locator:
        view = self.tab.locator(f"main[data-state={state}]")
        expect(view).to_be_attached(timeout=WAIT_MS)
        return view

    def get(self, testid: str, **attributes: object) -> Locator:
        wanted = "".join(
            f"[data-{name.replace('_', '-')}={json.dumps(str(value))}]" for name, value in attributes.items()
        )
        return self.tab.locator(f"[data-testid={testid}]{wanted}")

    def press(self, name: str) -> None:
        self.tab.get_by_role("button", name=name, exact=True).click()

    def check(self) -> None:
        """Fail for what the page logged, and for what axe finds."""
        errors = [each for each in self.errors if not any(part in each for part in self.expected)]
        assert not errors, errors
        found: Any = Axe().run(self.tab).response["violations"]
        assert not found, [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


@pytest.fixture
def pages(browser: Browser, url: str) -> Iterator[Pages]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    expect.set_options(timeout=WAIT_MS)
    shown = Pages(context.new_page(), url)
    yield shown
    shown.check()
    context.close()
