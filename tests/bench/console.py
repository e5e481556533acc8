"""The console's heat map in a real browser: how soon it is drawn, and how long frames take while it scrolls.

A quorum of three nodes holds the records of many partitions, a console reads them, and Chromium draws; frames
are timed by the browser itself. Chromium and playwright are needed by this benchmark alone. Times are never
asserted here.
Source: docs/operate/console.md.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kazoo.client import KazooClient

from quorum.console.server import ConsoleOptions, serving
from quorum.local import ensemble_in_thread, in_thread
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROKERS: Final = (1, 2, 3)
TOPIC_PARTITIONS: Final = 100
WAIT_S: Final = 60.0
#: a frame that a person notices
LONG_FRAME_MS: Final = 100
#: scrolls by a bit less than a row of text at a time, from the top to the end and back; returns milliseconds
_SCROLL: Final = """async (count) => {
  const box = document.querySelector("[data-testid=heatmap]");
  const frames = [];
  let step = 97, last = await new Promise(requestAnimationFrame);
  while (frames.length < count) {
    const before = box.scrollTop;
    box.scrollTop += step;
    if (box.scrollTop === before) step = -step;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  return frames;
}"""


class Sizes(NamedTuple):
    """How much is shown, how many frames are timed, how often."""

    partitions: int = 10_000
    frames: int = 300
    rounds: int = 3


FULL: Final = Sizes()


class Drawn(NamedTuple):
    """One round.

    Attributes:
        shown_ms: from the address until every cell is there.
        frames_ms: while it scrolled.
    """

    shown_ms: float
    frames_ms: list[float]


def run(sizes: Sizes) -> list[str]:
    """Measure; returns the lines of the report."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium is not None, "no chromium on the PATH: make chromium"
    with ensemble_in_thread() as quorum:
        _fill(quorum.hosts, sizes.partitions)
        options = ConsoleOptions(quorum.admin_urls, port=0)
        with in_thread(lambda: serving(options), "console") as (console, _), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            rounds = [_draw(browser, console.url, sizes) for _ in range(sizes.rounds)]
            version = browser.version
            browser.close()
    return table(sizes, version, rounds)


def _draw(browser: Browser, url: str, sizes: Sizes) -> Drawn:
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(WAIT_S * 1000)
    page.goto(f"{url}#/partitions?show=all")
    page.locator(f"[data-testid=heatmap][data-cells='{sizes.partitions * len(BROKERS)}']").wait_for()
    shown_ms = page.evaluate("performance.now()")
    frames_ms = page.evaluate(_SCROLL, sizes.frames)
    page.close()
    return Drawn(shown_ms, frames_ms)


def table(sizes: Sizes, version: str, rounds: list[Drawn]) -> list[str]:
    """Lay out what was measured."""
    frames = sorted(each for one in rounds for each in one.frames_ms)
    shown_s = statistics.median(one.shown_ms for one in rounds) / 1000
    longer = sum(each > LONG_FRAME_MS for each in frames)
    what = f"{sizes.partitions:,} partitions of {len(BROKERS)} replicas"
    return [
        "",
        f"{what}, {len(frames)} frames, Chromium {version}",
        "",
        "| heat map | |",
        "| --- | --- |",
        f"| from the address until it is drawn, median | {shown_s:.2f} s |",
        f"| a frame while it scrolls: p50 | {statistics.median(frames):.1f} ms |",
        f"| p99 | {frames[int(0.99 * (len(frames) - 1))]:.1f} ms |",
        f"| the longest | {frames[-1]:.1f} ms |",
        f"| frames above {LONG_FRAME_MS} ms | {longer} |",
    ]


def _fill(hosts: str, partitions: int) -> None:
    """Write the records of topics and partitions, a topic a transaction."""
    client = KazooClient(hosts)
    client.start(WAIT_S)
    client.ensure_path(paths.BROKER_TOPICS)
    for number in range(partitions // TOPIC_PARTITIONS):
        transaction = client.transaction()
        for path, data in _topic(f"topic-{number:05d}"):
            transaction.create(path, data)
        failed = [each for each in transaction.commit() if isinstance(each, Exception)]
        assert not failed, failed[0]
    client.stop()
    client.close()


def _topic(name: str) -> Iterator[tuple[str, bytes]]:
    replicas = {number: BROKERS[number % 3 :] + BROKERS[: number % 3] for number in range(TOPIC_PARTITIONS)}
    yield paths.topic_path(name), TopicRecord(None, replicas).encode()
    yield paths.topic_partitions_path(name), b""
    for number, (leader, *others) in replicas.items():
        key = PartitionKey(name, number)
        # Of every seventh partition one replica lags.
        isr = (leader, *others[: 1 if number % 7 == 0 else 2])
        yield paths.partition_path(key), b""
        yield (
            paths.partition_state_path(key),
            PartitionStateRecord(ControllerEpoch(1), leader, LeaderEpoch(0), isr).encode(),
        )
