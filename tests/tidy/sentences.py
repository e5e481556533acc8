"""Counts the words of a Markdown page's sentences.

Knows nothing of grammar: a paragraph, a list item, a heading and a cell of a table is each a text of its
own, and a sentence of it ends at `.`, `?` or `!` before a space or the end. Closing brackets, quotes and
emphasis may stand in between. A code span is one word, and a link the words that a reader sees. Fenced blocks
do not count.

Source: our own rule; CONTRIBUTING.md, "Rules that a test keeps".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.site.pages import parts

WORDS_MAX: Final = 30
NEW_TEXT: Final = re.compile(r"\s*(?:[-*+]\s|\d+[.)]\s|#+\s|>)+\s*")
END: Final = re.compile(r"(?<=[.?!])[)\]\"'*_]*(?:\s+|$)")


def texts(page: str) -> Iterator[tuple[int, str]]:
    """Yield the line on which each text of a page begins, from 1, and the text on one line."""
    prose = "".join("\n" * part.count("\n") if block else part for part, block in parts(page))
    begun, lines = 0, list[str]()
    for number, line in enumerate([*prose.splitlines(), ""], 1):
        opened = NEW_TEXT.match(line)
        if lines and (opened or not line.strip() or line.lstrip().startswith("|")):
            yield begun, " ".join(lines)
            lines = []
        if not line.strip():
            continue
        if line.lstrip().startswith("|"):
            yield from ((number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line) if cell.strip())
            continue
        begun = begun if lines else number
        lines.append(line[opened.end() :].strip() if opened else line.strip())
        if line.lstrip().startswith("#"):
            yield begun, lines.pop()


def sentences(text: str) -> list[str]:
    """Return the sentences of a text as a reader sees them: a code span is `X`, a link its words."""
    seen = re.sub(r"(`+).+?\1", "X", text)
    for _ in range(2):  # an image may be a link's words
        seen = re.sub(r"!?\[([^\[\]]*)\]\([^()\s]*\)", r"\1", seen)
    return [each for each in END.split(seen) if each]


def long_sentences(page: str, words_max: int = WORDS_MAX) -> list[tuple[int, str]]:
    """Return each sentence with more than `words_max` words, and the line where its text begins."""
    return [
        (line, each)
        for line, text in texts(page)
        for each in sentences(text)
        if len(each.split()) > words_max
    ]
