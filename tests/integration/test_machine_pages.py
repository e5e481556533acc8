"""The pages about machines of one's own: every command runs, and three machines become a checked cluster.

Each machine is a loopback address of its own, so that ports are those of the pages.
Source: docs/operate/install.md, brokers.md, members.md.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from tests.site.commands import walk

SERVERS = {
    "quorate serve": "files and sockets may be open",
    "quorate broker": "files and sockets may be open",
}


def test_install(tmp_path: Path) -> None:
    net = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250) + 1}"
    rewrites = {f"10.0.0.{each}": f"{net}.{each}" for each in ("1", "2", "3", "4", "@", "$i")}
    with walk("docs/operate/install.md", tmp_path / "install", rewrites=rewrites, runs_on=SERVERS) as page:
        page.run()
