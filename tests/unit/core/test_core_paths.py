"""Which strings are paths."""

from __future__ import annotations

import pytest

from quorum.core.paths import (
    PATH_BYTES_MAX,
    PATH_SEGMENTS_MAX,
    excess_of,
    is_keepable,
    is_valid_path,
    parent_of,
)


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


@pytest.mark.parametrize(
    ("path", "excess"),
    [
        ("/", ""),
        ("/a" * PATH_SEGMENTS_MAX, ""),
        ("/a" * (PATH_SEGMENTS_MAX + 1), "257 segments, a path has at most 256"),
        ("/" + "a" * (PATH_BYTES_MAX - 1), ""),
        ("/" + "a" * PATH_BYTES_MAX, "8193 bytes, a path has at most 8192"),
        ("/" + "\u00e9" * (PATH_BYTES_MAX // 2), "8193 bytes, a path has at most 8192"),
    ],
)
def test_a_path_has_a_bounded_length_in_bytes_and_segments(path: str, excess: str) -> None:
    assert excess_of(path, len(path.encode())) == excess
    assert is_valid_path(path), "the length is judged apart"
    assert is_keepable(path) == (not excess)


@pytest.mark.parametrize(("path", "parent"), [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")])
def test_parent(path: str, parent: str) -> None:
    assert parent_of(path) == parent
