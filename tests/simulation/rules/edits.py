"""Switches a rule of the shipped code off in this process, and on again.

An `Edit` names a function of the product, a piece of its source and what stands there instead. The module is
compiled with the new text and the function gets the code of its namesake, so that everybody who has the
function already (imports, tables, bound methods, subclasses) runs the changed one; files are never touched.
The piece must stand exactly once in the function, whatever its white space: an edit whose place has moved
away fails loudly instead of changing nothing. A `Setting` replaces a constant of a module.

Knows nothing of rules, seeds or worlds.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple


class EditError(ValueError):
    """An edit does not fit the code that there is."""


class Edit(NamedTuple):
    """A piece of a function that is replaced.

    Attributes:
        target: "module:Class.method" or "module:function"; a property means its getter.
        old: the piece; white space matches any white space.
        new: what stands there instead; further lines get the indentation of the first.
    """

    target: str
    old: str
    new: str


class Setting(NamedTuple):
    """A constant of a module that is replaced.

    Attributes:
        target: "module:NAME"; the module whose functions read it.
        value: what it is instead.
    """

    target: str
    value: Any


Change = Edit | Setting


def find(target: str) -> tuple[ModuleType, FunctionType]:
    """Return the module and the function that a target names.

    Raises:
        EditError: there is no such function.
    """
    module_name, _, path = target.partition(":")
    module = importlib.import_module(module_name)
    found: Any = module
    try:
        for name in path.split("."):
            found = vars(found)[name]
    except KeyError as error:
        raise EditError(f"{target}: there is no {error}") from error
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not isinstance(found, FunctionType):
        raise EditError(f"{target} is no function but {found!r}")
    return module, found


def changed_code(target: str, edits: Sequence[Edit]) -> CodeType:
    """Return the code of a function with pieces of it replaced.

    Raises:
        EditError: a piece does not stand there exactly once, or the code comes out as it was.
    """
    module, function = find(target)
    lines, first = inspect.getsourcelines(function)
    text = "".join(lines)
    for edit in edits:
        text = _replaced(text, edit)
    source = inspect.getsource(module).splitlines(keepends=True)
    whole = "".join([*source[: first - 1], text, *source[first - 1 + len(lines) :]])
    code = _namesake(compile(whole, function.__code__.co_filename, "exec"), function.__qualname__)
    if code is None or code.co_freevars != function.__code__.co_freevars:
        raise EditError(f"{target} cannot be replaced in place")
    original = function.__code__
    if (code.co_code, code.co_consts, code.co_names) == (
        original.co_code,
        original.co_consts,
        original.co_names,
    ):
        raise EditError(f"{target}: {edits} changes nothing")
    return code


def _replaced(text: str, edit: Edit) -> str:
    pattern = r"\s+".join(map(re.escape, edit.old.split()))
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise EditError(f"{edit.target}: {edit.old!r} stands there {len(found)} times, not once")
    start, end = found[0].span()
    line = text[text.rfind("\n", 0, start) + 1 : start]
    indentation = line[: len(line) - len(line.lstrip())]
    return text[:start] + edit.new.replace("\n", "\n" + indentation) + text[end:]


def _namesake(code: CodeType, qualname: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found = constant if constant.co_qualname == qualname else _namesake(constant, qualname)
            if found is not None:
                return found
    return None


@contextmanager
def made(changes: Sequence[Change]) -> Iterator[None]:
    """Make all changes, and undo them in the end.

    Raises:
        EditError: one does not fit; none is made.
    """
    edits: dict[str, list[Edit]] = {}
    settings: list[tuple[ModuleType, str, Any]] = []
    for change in changes:
        if isinstance(change, Edit):
            edits.setdefault(change.target, []).append(change)
        else:
            module_name, _, name = change.target.partition(":")
            module = importlib.import_module(module_name)
            if not hasattr(module, name) or getattr(module, name) == change.value:
                raise EditError(f"{change.target} is not there, or is {change.value!r} already")
            settings.append((module, name, change.value))
    codes = [(find(target)[1], changed_code(target, mine)) for target, mine in edits.items()]
    before = [(function, function.__code__) for function, _ in codes]
    old = [(module, name, getattr(module, name)) for module, name, _ in settings]
    try:
        for function, code in codes:
            function.__code__ = code
        for module, name, value in settings:
            setattr(module, name, value)
        yield
    finally:
        for function, code in before:
            function.__code__ = code
        for module, name, value in old:
            setattr(module, name, value)
