"""The pages that are made from the code are as the code is; what they lack is an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.site import raised, settings_page
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
