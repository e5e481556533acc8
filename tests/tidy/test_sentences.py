"""A sentence of the documentation has at most 30 words, and a longer one that is planted is found."""

from __future__ import annotations

import pytest

from tests.tidy.rules import REPOSITORY
from tests.tidy.sentences import WORDS_MAX, long_sentences

PAGES = sorted(
    page for pattern in ("*.md", "deploy/**/*.md", "docs/**/*.md") for page in REPOSITORY.glob(pattern)
)
LONG = " ".join(["word"] * 31) + "."


def test_no_sentence_is_too_long() -> None:
    found = [
        f"{page.relative_to(REPOSITORY)}:{line}: {len(sentence.split())} words: {sentence}"
        for page in PAGES
        for line, sentence in long_sentences(page.read_text(encoding="utf-8"))
    ]
    assert found == [], f"split what has more than {WORDS_MAX} words"


def test_the_pages_are_those_that_readers_get() -> None:
    names = {str(page.relative_to(REPOSITORY)) for page in PAGES}
    assert {"README.md", "SECURITY.md", "deploy/spark/README.md", "docs/index.md"} <= names


@pytest.mark.parametrize(
    ("page", "line"),
    [
        (f"# Title\n\nShort. {LONG} Short.\n", 3),
        (f"Short:\n{LONG[5:]}\n", 1),
        (f"- Short.\n- {LONG}\n", 2),
        (f"3. {LONG}\n", 1),
        (f"> {LONG}\n", 1),
        (f"| a | b |\n|---|---|\n| short | {LONG} |\n", 3),
        (f"```\nx\n```\n\n{LONG}\n", 5),
        (f"**Bold.** Short (`code`). {LONG}\n", 1),
        (f"{LONG[:-1]}\n", 1),
        (f"# {LONG}\n", 1),
    ],
)
def test_a_long_sentence_is_found(page: str, line: int) -> None:
    assert [(at, len(sentence.split())) for at, sentence in long_sentences(page)] == [(line, 31)]


@pytest.mark.parametrize(
    "page",
    [
        f"{LONG[:-6]}. {LONG[:-6]}? {LONG[:-6]}!\n",
        f'{LONG[:-6]}.** {LONG[:-6]}.) {LONG[:-6]}." {LONG[:-6]}\n',
        f"```\n{LONG}\n```\n",
        f"1. Short\n\n   ~~~console\n   $ {LONG}\n   ~~~\n",
        f"{LONG[:-11]} `{LONG}`.\n",
        f"{LONG[:-11]} [link]({'w/' * 40}page.md#a).\n",
        f"- {LONG[:-6]}\n- {LONG[:-6]}\n",
        f"{LONG[:-6]}\n\n{LONG[:-6]}\n",
        f"| {LONG[:-6]} | {LONG[:-6]} |\n",
        f"{LONG[:-11]} 0.72×.\n",
    ],
)
def test_what_is_short_is_not_found(page: str) -> None:
    assert long_sentences(page) == []
