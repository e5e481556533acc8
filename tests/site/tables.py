"""Markdown that the pages made from the code share: tables, whose rows can be linked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

NOTE: Final = "This page is made from the code by `python -m tests.site reference`; do not edit it."


def cell(text: str) -> str:
    """Return a text as one cell of a table has it; a star or an angle of it is one outside of code, too."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.replace("|", "\\|").split()))
    return "".join(each if each.startswith("`") else re.sub(r"([*<])", r"\\\1", each) for each in parts)


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    shown = " ".join(text.replace("|", "\\|").split())
    return f"`` {shown} ``" if "`" in text else f"`{shown}`"


def anchored(anchor: str, text: str) -> str:
    """Return code that other pages can link by an anchor."""
    return f'<a id="{anchor}"></a>{code(text)}'


def sentence(text: str) -> str:
    """Return a text with a capital letter, unless it begins with code or a name that has capitals inside."""
    first = text.split(maxsplit=1)[0] if text else ""
    return text[:1].upper() + text[1:] if first.rstrip(",:;").isalpha() and first.islower() else text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are as `cell` or `code` returned them."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"|{'|'.join(f' {each} ' if each else ' ' for each in line)}|\n" for line in lines)


def joined(parts: Iterable[str]) -> str:
    """Return a page of its parts, with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
