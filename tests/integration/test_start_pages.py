"""The commands and programs of docs/start, as a newcomer runs them.

`make up` installs into .venv and runs `quorate up`; here the environment exists, and the latter runs.
"""

from __future__ import annotations

from pathlib import Path

from tests.site.commands import walk

MAKE_UP = {"make up": "quorate up"}


def test_the_quick_start(tmp_path: Path) -> None:
    with walk("docs/start/quick-start.md", tmp_path, rewrites=MAKE_UP) as page:
        page.run()
