"""The messages and remedies of errors, as templates, read from the calls that make them.

A template has `…` where a value stands. A text that is put together elsewhere is followed to where its name
was given it last, in the same function or module; what cannot be followed is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.tidy.rules import REPOSITORY

_PACKAGES: Final = ("quorum", "broker", "controller")
_DEPTH_MAX: Final = 3
#: What stands for a value.
VALUE: Final = "…"


class Raised(NamedTuple):
    """One call that makes an error: its class, the texts of its arguments ("": no text), and its file."""

    kind: str
    texts: tuple[str, ...]
    file: str


def _texts(node: ast.expr, names: Mapping[str, list[ast.expr]], depth: int = 0) -> str:
    """Return the template that an expression makes; "": none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                inner = _texts(each.value, names, depth + 1) if isinstance(each.value, ast.Name) else ""
                parts.append(inner or VALUE)
            else:
                parts.append(_texts(each, names))
        return re.sub(rf"{VALUE}(\s*{VALUE})+", VALUE, "".join(parts))
    if isinstance(node, ast.Name) and depth < _DEPTH_MAX:
        before = [each for each in names.get(node.id, []) if each.lineno < node.lineno]
        return _texts(max(before, key=lambda each: each.lineno), names, depth + 1) if before else ""
    return ""


def _given(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """Return {name: what it is given} of the assignments of a function or module, pairs included."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found.setdefault(node.target.id, []).append(node.value)
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(node.value)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for name, value in zip(target.elts, node.value.elts, strict=False):
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, []).append(value)
    return found


def raised(kinds: set[str]) -> Iterator[Raised]:
    """Yield every call of these classes in the sources of nodes, brokers and commands, by file."""
    for file in sorted(each for package in _PACKAGES for each in (REPOSITORY / package).rglob("*.py")):
        text = file.read_text("utf-8")
        if any(kind in text for kind in kinds):
            yield from _in_file(file, text, kinds)


def _in_file(file: Path, text: str, kinds: set[str]) -> Iterator[Raised]:
    tree = ast.parse(text)
    module = _given(ast.Module([each for each in tree.body if not isinstance(each, _BLOCKS)], []))
    seen: set[ast.Call] = set()
    for block in (*(each for each in ast.walk(tree) if isinstance(each, _FUNCTIONS)), tree):
        names = module | _given(block)
        for call in ast.walk(block):
            if not isinstance(call, ast.Call) or call in seen or not isinstance(call.func, ast.Name):
                continue
            if call.func.id in kinds:
                seen.add(call)
                texts = tuple(_texts(each, names) for each in call.args)
                yield Raised(call.func.id, texts, file.relative_to(REPOSITORY).as_posix())


_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (*_FUNCTIONS, ast.ClassDef)
