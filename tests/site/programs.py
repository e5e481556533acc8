"""Programs that pages show: found in the page itself, so that a test runs what a reader copies.

If a block of plain text (```text) is next after a file, with nothing between them but words, it is what the
program prints. Decides nothing about what runs it. Source: docs/internals/site.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.site.pages import blocks_of


class Program(NamedTuple):
    """A file that a page shows.

    Attributes:
        name: of the file.
        text: all of it.
        prints: what the page says that it prints; None: the page does not say.
    """

    name: str
    text: str
    prints: str | None


def files(page: str) -> list[Program]:
    """Return every file that a page shows, in order.

    Raises:
        ValueError: two files have one name.
    """
    found: dict[str, Program] = {}
    for block, after in itertools.pairwise([*blocks_of(page), None]):
        if block is None or not block.title:
            continue
        if block.title in found:
            raise ValueError(f"{page} shows two files {block.title}")
        prints = after.text if after is not None and after.language == "text" else None
        found[block.title] = Program(block.title, block.text, prints)
    return [*found.values()]


def settings(page: str, name: str) -> dict[str, str]:
    """Return the settings of a file of Java's that a page shows, `name=value` a line."""
    (text,) = (each.text for each in files(page) if each.name == name)
    return dict(line.split("=", 1) for line in text.splitlines())


def readdressed(text: str, addresses: Mapping[str, str]) -> str:
    """Return a text with other addresses: {as the page has it: where the servers of the test listen}."""
    for shown, real in addresses.items():
        text = text.replace(shown, real)
    return text


def write(page: str, folder: Path, addresses: Mapping[str, str]) -> list[Program]:
    """Write the files of a page to a folder, with other addresses; returns the files.

    Args:
        page: its path in the repository.
        folder: where the programs will run.
        addresses: as for readdressed.
    """
    found = files(page)
    for each in found:
        (folder / each.name).write_text(readdressed(each.text, addresses), "utf-8")
    return found
