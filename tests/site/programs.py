"""Programs that pages show: found in the page itself, so that a test runs what a reader copies.

A fenced block whose first line is a comment with a file's name (`# lock.py`, `// Lock.java`,
`# producer.properties`) is that file, whole. If a block of plain text (```text) is next, with nothing between
them but words, it is what the program prints. Decides nothing about what runs it.
Source: docs/internals/site.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tidy.rules import REPOSITORY

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME: Final = re.compile(r"(?:#|//) ([\w.-]+\.[a-z]+)\n")


@dataclass(frozen=True)
class Program:
    """A file that a page shows.

    Attributes:
        name: of the file.
        text: all of it.
        prints: what the page says that it prints; None: the page does not say.
    """

    name: str
    text: str
    prints: str | None


def blocks(page: str, language: str) -> list[str]:
    """Return the text of every fenced block of one language, in order.

    Args:
        page: its path in the repository. language: what follows the fence, "python".
    """
    text = (REPOSITORY / page).read_text("utf-8")
    return [block.group(2) for block in _BLOCK.finditer(text) if block.group(1) == language]


def files(page: str) -> list[Program]:
    """Return every file that a page shows, in order.

    Raises:
        ValueError: two files have one name.
    """
    found: list[Program] = []
    text = (REPOSITORY / page).read_text("utf-8")
    shown = list(_BLOCK.finditer(text))
    for block, after in zip(shown, [*shown[1:], None], strict=True):
        if (name := _NAME.match(block.group(2))) is None:
            continue
        if any(each.name == name.group(1) for each in found):
            raise ValueError(f"{page} shows two files {name.group(1)}")
        prints = after.group(2) if after is not None and after.group(1) == "text" else None
        found.append(Program(name.group(1), block.group(2), prints))
    return found


def settings(page: str, name: str) -> dict[str, str]:
    """Return the settings of a file of Java's that a page shows, `name=value` a line."""
    (text,) = (each.text for each in files(page) if each.name == name)
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


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
