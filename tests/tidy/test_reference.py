"""The pages that are made from the code are as the code is; what they lack is an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.wire.codes import ErrorCode
from tests.site import errors_page, raised, settings_page, staging
from tests.site.reference import PAGES
from tests.tidy.rules import REPOSITORY


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_as_the_code(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    written = (REPOSITORY / path).read_text(encoding="utf-8")
    assert written == PAGES[path](), "write it again: python -m tests.site reference"


@pytest.mark.parametrize("path", PAGES)
def test_an_anchor_of_a_page_is_there_once(path: str) -> None:
    anchors = re.findall(r'<a id="([^"]+)"', (REPOSITORY / path).read_text(encoding="utf-8"))
    assert len(anchors) == len(set(anchors))


#: a code of Kafka's, as pages name it
_CODE = re.compile(r"\b([A-Z]+_[A-Z_]+) \((\d+)\)")


def test_pages_name_codes_by_their_numbers() -> None:
    named = [
        (page, *found)
        for page in staging.pages()
        for found in _CODE.findall((REPOSITORY / page).read_text(encoding="utf-8"))
    ]
    answered = {(name, str(ErrorCode[name].value)) for name in errors_page.answered_by_brokers()}
    assert len(named) > 20
    assert [each for each in named if each[1:] not in answered] == []


def test_the_page_of_kafka_clients_says_of_each_error_whether_it_was_stored() -> None:
    page = (REPOSITORY / "docs/clients/kafka.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if _CODE.search(line) and line.startswith("|")]
    assert len(rows) > 10
    for _, errors, stored, *_ in rows:
        for name, _ in _CODE.findall(errors):
            code = ErrorCode[name]
            is_definite = code.definite and code not in errors_page.AFTER_APPENDS
            assert not stored.strip() or (stored.strip() == "no") is is_definite, name


def test_a_setting_without_words_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    read = settings_page.comments

    def silent(*sample: object) -> object:
        sections, keys = read(*sample)  # type: ignore[arg-type]  # as it was called
        return sections, {**keys, ("limits", "tick_ms"): ""}

    monkeypatch.setattr(settings_page, "comments", silent)
    with pytest.raises(ValueError, match=re.escape("node.toml says nothing of limits.tick_ms")):
        settings_page.page()


def test_a_remedy_is_followed_to_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quorum").mkdir()
    (tmp_path / "quorum/a.py").write_text(
        """
KNOWN = "an even one"
def check(value):
    remedy = f"give {KNOWN}"
    raise UsageError(f"{value} is odd", remedy)
    remedy = "later"
def other():
    raise ValueError("none of ours")
"""
    )
    monkeypatch.setattr(raised, "REPOSITORY", tmp_path)
    assert list(raised.raised({"UsageError"})) == [
        raised.Raised("UsageError", ("… is odd", "give an even one"), "quorum/a.py")
    ]
