"""Which strings are znode paths: ZooKeeper's rules, segment by segment.

A path begins with a slash; no segment is empty, "." or ".."; it has no slash at its end; control characters,
surrogates, the private use area, U+FFF0-FFFF and everything beyond the basic plane (surrogates in Java's
strings) are refused. The functions are pure and hold no state. What exists in the tree is valid by
construction, so only new names are checked.

Source: ZooKeeper 3.9 PathUtils.validatePath.
"""

from __future__ import annotations

import re
from typing import Final

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
#: paths that ZooKeeper keeps for itself: they cannot be deleted
SPECIAL_PATHS: Final = frozenset(("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"))


def is_valid_segment(segment: str) -> bool:
    """Tell whether a string may be one segment of a path.

    Args:
        segment: the text between two slashes; must not contain a slash itself.
    """
    if segment in ("", ".", ".."):
        return False
    if segment.isascii() and segment.isprintable():
        return True
    return _FORBIDDEN.search(segment) is None


def is_valid_path(path: str) -> bool:
    """Tell whether a string is a path that a znode can have; the root is one."""
    if path == "/":
        return True
    first, *segments = path.split("/")
    return first == "" and bool(segments) and all(is_valid_segment(segment) for segment in segments)


def parent_of(path: str) -> str:
    """Return the path of the parent of a valid path; the root's parent is the root."""
    return path.rpartition("/")[0] or "/"
