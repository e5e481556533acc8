"""Which strings are paths."""

from __future__ import annotations

import pytest

from quorum.core.paths import is_valid_path, parent_of


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a",
        "/a/b/c",
        "/...",
        "/.a",
        "/a.",
        "/..a",
        "/a..",
        "/ ",
        "/~",
        "/\xa0",
        "/\ud7ff",
        "/\uf900",
        "/\uffef",
    ],
)
def test_valid(path: str) -> None:
    assert is_valid_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "a",
            "a/b",
            "//",
            "/a/",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/./a",
            "/a/.",
            "/a/../b",
            "/\0",
            "/a\0b/c",
        ),
        *(
            "/\x01",
            "/\x1f",
            "/\x7f",
            "/\x9f",
            "/\ud800",
            "/\ue000",
            "/\uf8ff",
            "/\ufff0",
            "/\uffff",
            "/\U00010000",
        ),
    ],
)
def test_invalid(path: str) -> None:
    assert not is_valid_path(path)


@pytest.mark.parametrize(("path", "parent"), [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")])
def test_parent(path: str, parent: str) -> None:
    assert parent_of(path) == parent
