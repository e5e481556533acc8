"""The commands and programs of docs/start, as a newcomer runs them.

`make up` installs into .venv and runs `quorate up`; here the environment exists, and the latter runs.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.site.commands import walk
from tests.support.nodes import eventually
from tests.tidy.rules import REPOSITORY

MAKE_UP = {"make up": "quorate up"}
DEADLINE_S = 60.0
#: some are still sent while a broker is killed
ORDERS = 3_000


def test_the_quick_start(tmp_path: Path) -> None:
    with walk("docs/start/quick-start.md", tmp_path, rewrites=MAKE_UP) as page:
        page.run()


def test_the_tour(tmp_path: Path) -> None:
    fewer = {"range(100_000)": f"range({ORDERS})"}
    runs_on = {"python produce.py": "sent: 1000", "python consume.py": "b'order 0'"}
    with walk("docs/start/tour.md", tmp_path, rewrites=MAKE_UP | fewer, runs_on=runs_on) as page:
        page.run("A tour")
        page.run("The quorum")
        page.run("Topics, producers, consumers")
        page.run("Kill a broker")
        page.wait("python produce.py")
        every = {f"b'order {number}'" for number in range(ORDERS)}
        output = page.output("python consume.py")
        eventually(lambda: every == {order for _, order in records(output)}, DEADLINE_S, "all are read")
        assert len(records(output)) == len(every)
        page.end("python consume.py")
        page.run("Compacted topics and transactions")
        page.run("Look into the files")
        page.end("make up")
        page.run("Of a stopped node")
        page.run("Without a terminal")


def test_in_your_tests(tmp_path: Path) -> None:
    with walk("docs/start/in-tests.md", tmp_path) as page:
        # A plugin of this environment's pytest needs Hypothesis.
        page.environment["PYTHONPATH"] = str(REPOSITORY)
        page.run()


def records(output: Path) -> set[tuple[str, str]]:
    """What a consumer printed: (partition and offset, value); its library writes between and inside lines."""
    without_news = re.sub(r"%\d\|.*\n", "", output.read_text("utf-8"))
    printed = re.findall(r"^(\d \d+) (b'order \d+')$", without_news, re.MULTILINE)
    return set(printed)
