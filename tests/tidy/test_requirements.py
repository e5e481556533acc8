"""docs/internals/requirements.md: every row names a decision, modules and tests, and what it names exists."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.tidy.rules import REPOSITORY

_ROW = re.compile(
    r"^\| \[(?P<number>[\w.]+)\] (?P<text>.+?) \| (?P<decision>.+?) \| (?P<modules>.+?) \| (?P<tests>.+?) \|$"
)
_NAMED = re.compile(r"`([\w/.]+)(?:::(\w+))?`")
#: what is built so far; an issue that builds more adds its numbers and rows
BUILT = {
    *("0.A", "0.A.1", "0.A.2", "0.A.3", "0.B", "0.C", "0.C1", "0.D", "0.E", "0.F"),
    *("0.disc1", "0.disc2", "0.disc3"),
    *("1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "2.1", "2.2", "2.3", "2.4", "2.5"),
    *("3.1", "3.2", "3.3", "3.4", "3.5"),
    *("4.A", "4.B", "4.C", "4.D", "4.E", "4.F", "4.open1", "4.open2", "4.open3"),
}


class Row(NamedTuple):
    number: str
    modules: list[tuple[str, str]]
    tests: list[tuple[str, str]]


def rows(text: str) -> list[Row]:
    """The requirements of a document."""
    found = [match for line in text.splitlines() if (match := _ROW.match(line))]
    return [
        Row(each["number"], _NAMED.findall(each["modules"]), _NAMED.findall(each["tests"])) for each in found
    ]


def problems(text: str) -> list[str]:
    """What a document's rows name and what does not exist, or names nothing at all."""
    wrong = []
    for row in rows(text):
        if not row.modules or not row.tests:
            wrong.append(f"[{row.number}] names no module or no test")
        for path, name in [*row.modules, *row.tests]:
            place = REPOSITORY / path
            if not place.is_file():
                wrong.append(f"[{row.number}] {path}")
            elif name and not re.search(rf"^ *(?:async )?def {name}\(", place.read_text(), re.MULTILINE):
                wrong.append(f"[{row.number}] {path}::{name}")
        wrong += [
            f"[{row.number}] {path} is no test" for path, _ in row.tests if not path.startswith("tests/")
        ]
    return wrong


def document() -> str:
    return (REPOSITORY / "docs/internals/requirements.md").read_text()


def test_every_requirement_that_is_built_has_one_row() -> None:
    numbers = [row.number for row in rows(document())]
    assert sorted(numbers) == sorted(BUILT)
    lines = [line for line in document().splitlines() if line.startswith("| [")]
    assert len(lines) == len(numbers), "a row is not well formed"


def test_modules_and_tests_of_requirements_exist() -> None:
    assert problems(document()) == []


def test_what_does_not_exist_is_found() -> None:
    here = "tests/tidy/test_requirements.py"
    text = "\n".join(
        [
            f"| [9.1] It is. | So. | `{here}` | `{here}::test_what_does_not_exist_is_found` |",
            f"| [9.2] It is. | So. | `broker/nowhere.py` | `{here}::test_nowhere` |",
            "| [9.3] It is. | So. | `tests/tidy/rules.py` | none |",
        ]
    )
    assert problems(text) == [
        "[9.2] broker/nowhere.py",
        f"[9.2] {here}::test_nowhere",
        "[9.3] names no module or no test",
    ]
