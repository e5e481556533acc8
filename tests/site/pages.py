"""The fenced blocks of a page, and what they are: a file, commands, what a program prints.

A block with a title (```python title="lock.py") is that file, whole. A block of tildes is code that no reader
copies, and none of `blocks`. Decides nothing about what is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.tidy.rules import REPOSITORY

_FENCED: Final = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<body>.*?)^ *(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_TITLE: Final = re.compile(r"title=\"([^\"]+)\"")


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        heading: of its section. line: of the page where its text begins, from 1.
        language: "" for none. title: the file's path; "" for none.
        text: without the indentation of a block in a list.
    """

    heading: str
    line: int
    language: str
    title: str
    text: str


def parts(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield the parts of a page in order; those that are fenced blocks with the match of their pieces."""
    end = 0
    for found in _FENCED.finditer(text):
        yield text[end : found.start()], None
        yield found.group(), found
        end = found.end()
    yield text[end:], None


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page's text, in order."""
    blocks: list[Block] = []
    heading = ""
    for part, found in parts(text):
        if found is None:
            heading = [heading, *_HEADING.findall(part)][-1]
        elif found["fence"].startswith("`"):
            title = _TITLE.search(found["rest"])
            line = text.count("\n", 0, found.start("body")) + 1
            body = "".join(
                line.removeprefix(found["indent"]) for line in found["body"].splitlines(keepends=True)
            )
            blocks.append(Block(heading, line, found["language"], title[1] if title else "", body))
    return blocks


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, which is named by its path in the repository."""
    return blocks((REPOSITORY / page).read_text("utf-8"))
