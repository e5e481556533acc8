"""Which strings are znode paths: ZooKeeper's rules, segment by segment.

A path begins with a slash; no segment is empty, "." or ".."; it has no slash at its end; control characters,
surrogates, the private use area, U+FFF0-FFFF and everything beyond the basic plane (surrogates in Java's
strings) are refused. The functions are pure and hold no state. What exists in the tree is valid by
construction, so only new names are checked.

How long a path may be is judged before a request reaches the log, by the codec, and never when an entry is
applied: what the log holds was accepted once.

Source: ZooKeeper 3.9 PathUtils.validatePath; the bounds are our own.
"""

from __future__ import annotations

import re
from typing import Final

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
#: bytes of a path, and segments in it: what a path costs grows with both
PATH_BYTES_MAX: Final = 8 * 1024
PATH_SEGMENTS_MAX: Final = 256
#: of these, what the number of a sequential node may take
SEQUENCE_BYTES_MAX: Final = 20
#: a path of so many bytes has not too many segments, unless it is none because some of them are empty
SHORT_PATH_BYTES_MAX: Final = 2 * PATH_SEGMENTS_MAX
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
    """Tell whether a string is a path that a znode can have, whatever its length; the root is one."""
    if path == "/":
        return True
    if path.isascii() and path.isprintable() and "//" not in path and "/." not in path:
        return path.startswith("/") and not path.endswith("/")
    first, *segments = path.split("/")
    return first == "" and bool(segments) and all(is_valid_segment(segment) for segment in segments)


def excess_of(path: str, path_bytes: int) -> str:
    """Say what a string has too much of to be a path; empty if nothing.

    Args:
        path: any string.
        path_bytes: of its UTF-8, and of what will be appended to it.
    """
    if path_bytes > PATH_BYTES_MAX:
        return f"{path_bytes} bytes, a path has at most {PATH_BYTES_MAX}"
    segments = path.count("/")
    if segments > PATH_SEGMENTS_MAX:
        return f"{segments} segments, a path has at most {PATH_SEGMENTS_MAX}"
    return ""


def is_keepable(path: str) -> bool:
    """Tell whether a string is a path that a client can give a node: valid, and not too long."""
    return is_valid_path(path) and not excess_of(path, len(path.encode()))


def parent_of(path: str) -> str:
    """Return the path of the parent of a valid path; the root's parent is the root."""
    return path.rpartition("/")[0] or "/"
