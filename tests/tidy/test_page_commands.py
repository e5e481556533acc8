"""Every command of the pages of docs/start and docs/operate is run by a test, or is named with its reason."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.site.commands import NOT_RUN, begins, steps, why_not_run
from tests.site.pages import blocks
from tests.tidy.rules import REPOSITORY

PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text("utf-8")
    for section in ("start", "operate")
    for path in sorted((REPOSITORY / "docs" / section).glob("*.md"))
}


def problems(text: str, *, walked: bool) -> list[str]:
    """What keeps the commands of a page from being run."""
    found = [] if walked or not any(can_be_run(text)) else ["no test walks it"]
    for block in blocks(text):
        first = block.text.strip().partition("\n")[0]
        if block.language in ("sh", "bash", "shell"):
            found.append(f"commands are lines `$ command` of a block of the language console: {first}")
        elif block.language == "console" and not first.startswith("$ "):
            found.append(f"a block of the language console begins with `$ `: {first}")
        elif block.language == "python" and not block.title:
            found.append(f"a program needs a title, by which a command runs it: {first}")
    return found


def can_be_run(text: str) -> list[str]:
    """The commands of a page that a test machine can run."""
    return [step.command for step in steps(text) if step.command and why_not_run(step.command) is None]


@cache
def walked_pages() -> set[str]:
    """Pages that a test walks."""
    tests = (path.read_text("utf-8") for path in Path(REPOSITORY / "tests").rglob("test_*.py"))
    return {page for text in tests for page in re.findall(r"\bwalk\w*\((?:\w+,)?\s*\"(docs/[^\"]+)\"", text)}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_commands_of_a_page_are_run(page: str) -> None:
    assert problems(PAGES[page], walked=page in walked_pages()) == []


def test_what_is_not_run_occurs_in_a_page() -> None:
    commands = [step.command for text in PAGES.values() for step in steps(text)]
    unused = [words for words in NOT_RUN if not any(begins(command, words) for command in commands)]
    assert unused == []


def test_commands_that_a_walk_would_not_see_are_found() -> None:
    text = "```sh\nquorate up\n```\n```console\nquorate up\n```\n"
    text += "```python\nprint()\n```\n```console\n$ make x\n```\n"
    assert [each.partition(":")[0] for each in problems(text, walked=False)] == [
        "no test walks it",
        "commands are lines `$ command` of a block of the language console",
        "a block of the language console begins with `$ `",
        "a program needs a title, by which a command runs it",
    ]
