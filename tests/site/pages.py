"""The fenced blocks of a page, and what they are: a file, commands, what a program prints.

A block with a title (```python title="lock.py") is that file, whole. Blocks of tildes are none here. Decides
nothing about what is run.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.tidy.rules import REPOSITORY

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<body>.*?)^ *```$|^#+ (?P<heading>[^\n]*)$",
    re.DOTALL | re.MULTILINE,
)
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


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page's text, in order."""
    found: list[Block] = []
    heading = ""
    for each in _BLOCK.finditer(text):
        if each["heading"] is not None:
            heading = each["heading"]
            continue
        title = _TITLE.search(each["rest"])
        line = text.count("\n", 0, each.start("body")) + 1
        body = "".join(line.removeprefix(each["indent"]) for line in each["body"].splitlines(keepends=True))
        found.append(Block(heading, line, each["language"], title[1] if title else "", body))
    return found


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, which is named by its path in the repository."""
    return blocks((REPOSITORY / page).read_text("utf-8"))
