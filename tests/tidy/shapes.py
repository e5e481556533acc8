"""The project's shapes that a program can check: circles of files, the size of classes, what lives where.

Unlike the rules of rules.py these look at many files at once. Each takes {path inside the repository: text},
so that a test can plant a violation. A limit that is not reached yet stands here as a number of today, and a
test demands that it is true: who improves the code lowers it.
Source: CONTRIBUTING.md, "Rules that a test keeps".
"""

from __future__ import annotations

import ast
import io
import re
import token
import tokenize
from collections.abc import Collection, Iterator
from functools import cache

from tests.tidy.rules import PRODUCT, REPOSITORY, module_name, python_files

Files = dict[str, str]

_NO_CODE = {
    *(token.NL, token.NEWLINE, token.COMMENT, token.INDENT, token.DEDENT),
    *(token.ENDMARKER, token.ENCODING),
}

#: public names of classes that mean something in more than one file
SHARED_NAMES_MAX = 17
#: where bytes are taken apart: Kafka's (with what only packs them), and the log's own files
BYTES_FOLDERS = ("controller/wire/", "controller/messages/", "broker/log/")
PACKING_FILES = {"broker/wire/packing.py"}
#: least share of the controller's code in its core, without what it says and how (wire, messages), in percent
CONTROLLER_CORE_PERCENT_MIN = 45
#: least lines of code of the broker's core without groups
BROKER_CORE_LINES_MIN = 1_000
#: where the monotonic clock is looked at; all others are given the time
CLOCK_FILES = {
    "broker/datadir/directory.py",
    "broker/groups/term.py",
    "broker/log/cleaning/process.py",
    "broker/log/disk_threads.py",
    "broker/replication/clock.py",
    "broker/replication/compaction.py",
    "broker/replication/fetchers.py",
    "broker/replication/fetching.py",
    "broker/replication/maintenance.py",
    "broker/replication/replica.py",
    "broker/server/authentication.py",
    "broker/server/connection.py",
    "broker/server/shedding.py",
    "broker/server/tokens.py",
    "broker/server/throttling.py",
    "broker/server/turns.py",
    "controller/runtime/shell.py",
}
#: {folder: how often its files say Any, which types nothing}
ANY_MAX = {"broker/server": 20}
#: {package: attributes of one object}
ATTRIBUTES_MAX = {"quorum": 20, "controller": 15, "broker": 15, "pipeline": 15}
#: classes that still have more
LARGE_CLASSES: set[str] = set()


def product(*packages: str) -> Files:
    """Every Python file of some packages; of the whole product without any."""
    return {
        path: (REPOSITORY / path).read_text(encoding="utf-8")
        for path in python_files()
        if path.split("/", 1)[0] in (packages or PRODUCT)
    }


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _known(files: Files) -> dict[str, set[str]]:
    """Return {module: the modules of these files that it imports}, those below TYPE_CHECKING as well."""
    texts = {module_name(path): text for path, text in files.items()}
    return {module: set(_imported(text, texts.keys())) - {module} for module, text in texts.items()}


def _imported(text: str, modules: Collection[str]) -> Iterator[str]:
    for node in ast.walk(_tree(text)):
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
    while ends := {module for module, needed in graph.items() if not needed}:
        # What needs nothing is in no circle.
        graph = {module: needed - ends for module, needed in graph.items() if module not in ends}
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


def large_classes(files: Files) -> dict[str, int]:
    """Return {class: how many attributes its methods set}, where they are too many; no record counts."""
    return {
        f"{module_name(path)}.{node.name}": count
        for path, text in files.items()
        for node in ast.walk(_tree(text))
        if isinstance(node, ast.ClassDef) and not _is_record(node)
        if (count := len(set(_attributes_set(node)))) > ATTRIBUTES_MAX[path.split("/", 1)[0]]
    }


def _is_record(node: ast.ClassDef) -> bool:
    made = [*(ast.unparse(each) for each in node.decorator_list), *map(ast.unparse, node.bases)]
    return any(name in each for each in made for name in ("dataclass", "NamedTuple"))


def _attributes_set(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def untyped(files: Files) -> dict[str, int]:
    """Return {folder: how often its files say Any}, where that is too often."""
    counts = dict.fromkeys(ANY_MAX, 0)
    for path, text in files.items():
        for folder in ANY_MAX:
            if path.startswith(folder + "/"):
                counts[folder] += len(re.findall(r"\bAny\b", text))
    return {folder: count for folder, count in counts.items() if count > ANY_MAX[folder]}


def code_lines(text: str) -> int:
    """Count the lines of code: not those that are blank, a comment or a docstring."""
    lines: set[int] = set()
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type not in _NO_CODE:
            lines.update(range(each.start[0], each.end[0] + 1))
    for node in ast.walk(_tree(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def folder_lines(files: Files, folder: str, *without: str) -> int:
    """Count the lines of code of a folder, without some folders of it."""
    return sum(
        code_lines(text)
        for path, text in files.items()
        if path.startswith(f"{folder}/") and not path.startswith(tuple(f"{each}/" for each in without))
    )


def controller_core_percent(files: Files) -> float:
    """Return how much of the code of the controller is in its core; wire and messages do not count."""
    whole = folder_lines(files, "controller", "controller/wire", "controller/messages")
    return 100 * folder_lines(files, "controller/core") / whole


def broker_core_lines(files: Files) -> int:
    """Return how many lines of code the broker's core has without groups."""
    return folder_lines(files, "broker/core", "broker/core/groups")


def due_attributes(files: Files) -> set[str]:
    """Return the attributes of objects whose names end in _due."""
    return {
        f"{module_name(path)}.{node.name}.{name}"
        for path, text in files.items()
        for node in ast.walk(_tree(text))
        if isinstance(node, ast.ClassDef)
        for name in _attributes_set(node)
        if re.fullmatch(r"_?[a-z]\w*_due", name)
    }


def clock_files(files: Files) -> set[str]:
    """Return the files that look at the monotonic clock."""
    return {path for path, text in files.items() if any(map(_is_clock, ast.walk(_tree(text))))}


def _is_clock(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="time"), attr=name) | ast.Name(id=name):
            return name.startswith("monotonic")
        case ast.ImportFrom(module="time", names=names):
            return any(each.name.startswith("monotonic") for each in names)
    return False


def decoding_files(files: Files) -> list[str]:
    """Return the files that take bytes apart, outside of the folders that do so; some may pack them."""
    return [
        path
        for path, text in files.items()
        if not path.startswith(BYTES_FOLDERS)
        if any(_is_decoding(node, packs=path in PACKING_FILES) for node in ast.walk(_tree(text)))
    ]


def _is_decoding(node: ast.AST, *, packs: bool) -> bool:
    match node:
        case ast.Attribute(attr="from_bytes" | "unpack" | "unpack_from" | "iter_unpack"):
            return True
        case ast.Import(names=names):
            return any(each.name == "struct" for each in names)
        case ast.ImportFrom(module="struct"):
            return not packs
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("kio.serial"):
            return any(each.name in ("entity_reader", "readers") for each in names) or "readers" in module
    return False


def shared_names(files: Files) -> dict[str, list[str]]:
    """Return {public class name: the files that define one}, where there are several."""
    places: dict[str, list[str]] = {}
    for path, text in files.items():
        for node in _tree(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}
