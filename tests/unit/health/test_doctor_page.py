"""docs/operate/doctor.md has every check with what the code says of it, and nothing else."""

from __future__ import annotations

from pathlib import Path

from quorum.doctor.doctor import all_checks

PAGE = Path(__file__).resolve().parents[3] / "docs/operate/doctor.md"


def test_the_table_of_checks_is_that_of_the_code() -> None:
    wanted = [
        f"| `{check.name}` | {check.severity.value} | {check.looks_at} | {check.why} |"
        for check in all_checks()
    ]
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## The checks\n")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == wanted


def test_names_of_checks_are_unique() -> None:
    names = [check.name for check in all_checks()]
    assert len(names) == len(set(names))
