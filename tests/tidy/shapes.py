"""The project's shapes that a program can check: circles of files, the size of classes, what lives where.

Unlike the rules of rules.py these look at many files at once. Each takes {path inside the repository: text},
so that a test can plant a violation. A limit that is not reached yet stands here as a number of today, and a
test demands that it is true: who improves the code lowers it.
Source: CONTRIBUTING.md, "Rules that a test keeps".
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from tests.tidy.rules import PRODUCT, REPOSITORY, module_name, python_files

Files = dict[str, str]

#: circles of files that are still there
KNOWN_CIRCLES: list[list[str]] = [
    ["broker.lifecycle.admin", "broker.lifecycle.broker"],
    ["broker.replication.replica", "broker.replication.waiting"],
]


def product(*packages: str) -> Files:
    """Every Python file of some packages; of the whole product without any."""
    return {
        path: (REPOSITORY / path).read_text(encoding="utf-8")
        for path in python_files()
        if path.split("/", 1)[0] in (packages or PRODUCT)
    }


def _known(files: Files) -> dict[str, set[str]]:
    """Return {module: the modules of these files that it imports}, those below TYPE_CHECKING as well."""
    texts = {module_name(path): text for path, text in files.items()}
    return {module: set(_imported(text, texts.keys())) - {module} for module, text in texts.items()}


def _imported(text: str, modules: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                named = inner if inner in modules else node.module
                if named in modules:
                    yield named


def circles(files: Files) -> list[list[str]]:
    """Return each group of modules that all need each other."""
    graph = _known(files)
    reached = {module: _reached(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in ahead if module in reached[other]))
        for module, ahead in reached.items()
        if module in ahead
    }
    return sorted(map(list, groups))


def _reached(graph: dict[str, set[str]], module: str) -> set[str]:
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        new = graph[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen
