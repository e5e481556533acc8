"""The project's rules that a program can check: imports, purity, sizes, sleeps, marks, paths.

Each rule takes a file's path inside the repository and its text and returns what is wrong, so that a test can
plant a violation. Which file a rule looks at is decided by the rule; `ALLOWED` is the map of the packages.
Source: CONTRIBUTING.md, "Rules that a test keeps".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PRODUCT = ("quorum", "controller", "broker", "pipeline")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 800

#: What each folder of the product may import directly, by the longest prefix; modules beside the folders of
#: `quorum` have rows of their own. A row names no folder that leads back to it, so the graph has no cycle.
ALLOWED: dict[str, set[str]] = {
    "quorum": set(),
    "quorum.errors": set(),
    "quorum.core": set(),
    "quorum.raft.core": set(),
    "quorum.platform": {"errors"},
    "quorum.config": {"errors", "platform"},
    "quorum.wire": {"core", "errors"},
    "quorum.raft": set(),
    "quorum.raft.journal": {"errors", "platform", "raft.core"},
    "quorum.raft.snapshots": {"errors", "platform", "raft.core", "raft.journal"},
    "quorum.raft.datadir": {"errors", "platform", "raft.core", "raft.journal", "raft.snapshots"},
    "quorum.raft.peers": {"errors", "platform", "raft.core"},
    "quorum.raft.requests": {"errors", "raft.core"},
    "quorum.raft.engine": {"errors", "platform", "raft.core", "raft.journal", "raft.peers", "raft.requests"},
    "quorum.server": {"config", "core", "errors", "platform", "wire"},
    "quorum.admin": {"changelog", "client", "config", "core", "errors", "metadata", "platform", "wire"},
    "quorum.changelog": {"core", "errors", "platform"},
    "quorum.node.digests": {"core", "errors", "raft.core", "raft.requests"},
    "quorum.node.catching_up": set(),
    "quorum.node.batches": {"node.importing", "platform", "raft.engine", "raft.requests"},
    "quorum.node.soft_limits": {"core", "errors"},
    "quorum.node.levels": {"core", "errors", "raft.core", "raft.engine", "raft.requests"},
    "quorum.node.expiry": {
        *("core", "errors", "node.soft_limits", "platform", "raft.core", "raft.engine", "raft.requests"),
    },
    "quorum.node.importing": {"core", "errors", "raft.requests"},
    "quorum.node.replica": {
        *("core", "errors", "platform", "raft.core", "raft.datadir", "raft.engine", "raft.requests"),
        *("node.batches", "node.catching_up", "node.digests", "node.expiry", "node.importing", "node.levels"),
    },
    "quorum.node": {
        *("admin", "changelog", "config", "core", "errors", "platform", "raft.core"),
        *("node.batches", "node.catching_up", "node.digests", "node.expiry", "node.levels", "node.replica"),
        "raft.datadir",
        *("raft.engine", "raft.journal", "raft.peers", "raft.requests", "raft.snapshots", "server", "wire"),
    },
    "quorum.client": {"errors", "wire"},
    "quorum.metadata": {"client", "errors"},
    "quorum.local": {"admin", "config", "errors", "node"},
    "quorum.pytest_plugin": {"local"},
    "quorum.launcher": {"admin", "config", "errors", "platform"},
    "quorum.health": set(),
    "quorum.doctor": {"admin", "config", "errors", "health", "platform"},
    "quorum.importing": {"admin", "client", "core", "errors", "platform", "wire"},
    "quorum.console": {"admin", "changelog", "config", "doctor", "errors", "health", "platform"},
    "quorum.top": {"config", "console", "doctor", "errors", "platform"},
    "quorum.cli.shell": {"client", "config", "errors", "platform", "wire"},
    "quorum.cli.offline": {
        *("config", "core", "errors", "node", "platform", "raft.core", "raft.datadir", "raft.journal"),
        *("raft.requests", "raft.snapshots"),
    },
    "quorum.backup": {
        *("admin", "core", "errors", "node", "platform", "raft.core", "raft.datadir", "raft.journal"),
        *("node.replica", "raft.requests", "raft.snapshots"),
    },
    "quorum.cli.commands": {
        *(
            "admin",
            "backup",
            "cli.offline",
            "cli.shell",
            "client",
            "config",
            "console",
            "doctor",
            "errors",
            "health",
            "importing",
            "launcher",
        ),
        *("core", "metadata", "node", "platform", "top"),
    },
    "quorum.cli": {"admin", "cli.commands", "config", "errors", "platform"},
    "quorum.__main__": {"cli"},
    "controller.core": {"wire"},
    "controller.election": set(),
    "controller.wire": set(),
    "controller.messages": {"wire"},
    "controller.runtime": {"core", "election", "messages", "wire"},
    "broker.config": set(),
    "broker.core": set(),
    "broker.log": set(),
    "broker.wire": set(),
    "broker.client": {"log", "wire"},
    "broker.datadir": {"log"},
    "broker.stores": set(),
    "broker.replication": {"core", "datadir", "log", "stores", "wire"},
    "broker.groups": {"config", "core", "health", "wire"},
    "broker.server": {"client", "config", "core", "groups", "replication", "stores", "wire"},
    "broker.lifecycle": {"config", "core", "datadir", "groups", "log", "replication", "server", "stores"},
    "broker.local": {"config", "lifecycle"},
    "broker.health": set(),
    "broker.doctor": {"client", "config", "health"},
    "broker.console": {"client", "health", "log"},
    "broker.commands": {"client", "config", "lifecycle", "stores"},
    "pipeline": set(),
    "pipeline.errors": set(),
    "pipeline.session": set(),
    "pipeline.checks": set(),
    "pipeline.dialling": {"errors"},
    "pipeline.topics": {"dialling", "errors", "sink"},
    "pipeline.sink": {"dialling", "errors"},
    "pipeline.changelog": {"dialling", "errors"},
    "pipeline.jobs": {"changelog", "checks", "errors", "session", "topics"},
    "pipeline.commands": {"errors", "jobs"},
    "pipeline.autoload": {"changelog", "topics"},
}
#: What each package may import of the others: these folders and modules, and what is below them.
FOREIGN: dict[str, set[str]] = {
    "quorum": set(),
    "controller": {
        *("quorum.errors", "quorum.client", "quorum.metadata", "quorum.config", "quorum.platform"),
        "quorum.local",
    },
    "broker": {
        *("quorum.errors", "quorum.client", "quorum.metadata", "quorum.config", "quorum.platform"),
        *("quorum.local", "quorum.launcher", "quorum.cli", "quorum.admin", "controller"),
        *("quorum.health", "quorum.doctor", "quorum.console"),
    },
    "pipeline": {
        *("quorum.errors", "quorum.client", "quorum.metadata", "quorum.config", "quorum.platform"),
        *("quorum.local", "quorum.cli", "quorum.admin", "broker.client", "broker.wire"),
    },
}

#: What the cores of the control plane may use besides: the typed records and the table of codes, all pure.
PURE_RECORDS = {
    *("quorum.metadata.numbers", "quorum.metadata.paths", "quorum.metadata.records"),
    *("quorum.metadata.topic_settings", "quorum.metadata.topic_setting_rows"),
    *("quorum.metadata.broker_settings", "quorum.metadata.group_records"),
    *("quorum.metadata.transaction_records", "quorum.metadata.acl_records"),
    *("quorum.metadata.user_records", "quorum.metadata.quota_records"),
    *("quorum.health.findings", "quorum.health.seen"),
    *("quorum.metadata.admin_requests", "quorum.metadata.errors"),
    *("controller.core.inputs", "controller.core.effects"),
    "controller.wire.codes",
    "controller.wire.consumer_protocol",
}

_IMPURE_MODULES = {
    *("asyncio", "concurrent", "multiprocessing", "threading", "_thread", "queue", "sched", "contextvars"),
    *("time", "datetime", "zoneinfo", "random", "secrets", "uuid", "locale", "getpass", "platform"),
    *("os", "pathlib", "io", "shutil", "tempfile", "glob", "fileinput", "mmap", "fcntl", "sqlite3", "dbm"),
    *("socket", "ssl", "select", "selectors", "http", "urllib", "socketserver", "smtplib"),
    *("logging", "warnings", "signal", "subprocess", "ctypes", "gc", "weakref"),
}
#: hash and id differ from process to process, the others reach outside.
_IMPURE_CALLS = {"hash", "id", "open", "print", "input", "eval", "exec", "__import__"}
_UNSAFE_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
PICKLE_WATCHERS = {"tests/integration/test_local.py"}
#: A test may wait only in these places, between two looks at a condition that has a deadline.
SLEEPS_ALLOWED = {("tests/support/nodes.py", "eventually")}
_MARKS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
_MACHINE_PATHS = re.compile(r"(?<![\w./-])/(?:home|root|Users|work)/[\w.-]+")

Finding = tuple[int, str]
Rule = Callable[[str, str], list[Finding]]


def python_files() -> Iterator[str]:
    """Every Python file of the project, as a path inside the repository."""
    for folder in (*PRODUCT, "tests"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            yield path.relative_to(REPOSITORY).as_posix()


def text_files() -> Iterator[str]:
    """Every file of the project that people read."""
    yield from python_files()
    for pattern in ("*.md", "*.toml", "Makefile", ".ci/*", "deploy/**/*", ".gitignore"):
        for path in sorted(REPOSITORY.glob(pattern)):
            if path.is_file():
                yield path.relative_to(REPOSITORY).as_posix()


def findings(rule: Rule, paths: Iterator[str]) -> list[str]:
    """Apply one rule to files; returns "path:line what" for each finding."""
    return [
        f"{path}:{line} {what}"
        for path in paths
        for line, what in rule(path, (REPOSITORY / path).read_text(encoding="utf-8"))
    ]


def imported(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, absolute; `from a import b` is a.b if a is one of our packages.

    Imports inside of functions and below TYPE_CHECKING count as well: the direction is about knowledge, not
    about loading.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = list(Path(path).with_suffix("").parts)
                base = ".".join([*parents[: len(parents) - node.level], *([base] if base else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
            if base in PRODUCT or all(name in PURE_RECORDS for name in names):
                yield from ((node.lineno, name) for name in names)
            else:
                yield node.lineno, base


def unit_of(module: str) -> str:
    """The row of the map that a module belongs to: the longest prefix, or the first two parts of its name."""
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        if (unit := ".".join(parts[:length])) in ALLOWED:
            return unit
    return ".".join(parts[:2])


def module_name(path: str) -> str:
    """The module that a file is."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_direction(path: str, text: str) -> list[Finding]:
    """No import against the directions of the map; every folder of the product is in the map."""
    package = path.split("/", 1)[0]
    if package not in PRODUCT:
        return []
    own = unit_of(module_name(path))
    if own not in ALLOWED and own not in PRODUCT:
        return [(1, f"{own} is not in the map of imports (tests/tidy/rules.py): say what it may import")]
    wrong: list[Finding] = []
    for line, module in imported(path, text):
        other = module.split(".", 1)[0]
        if other not in PRODUCT:
            continue
        if other != package:
            if module != "quorum.__version__" and not any(
                module == allowed or module.startswith(allowed + ".") for allowed in FOREIGN[package]
            ):
                wrong.append((line, f"{package} must not import {module}"))
            continue
        unit = unit_of(module)
        if (
            unit in ALLOWED
            and unit not in (own, package)
            and unit.removeprefix(f"{package}.") not in ALLOWED.get(own, set())
        ):
            wrong.append((line, f"{own} must not import {unit}"))
    return wrong


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Every row of the map from which its own name can be reached."""
    found: list[str] = []
    for start, direct in graph.items():
        package = start.split(".", 1)[0]
        seen: set[str] = set()
        ahead = [f"{package}.{unit}" for unit in direct]
        while ahead:
            unit = ahead.pop()
            if unit not in seen:
                seen.add(unit)
                ahead += [f"{package}.{name}" for name in graph.get(unit, set())]
        if start in seen:
            found.append(start)
    return found


def core_purity(path: str, text: str) -> list[Finding]:
    """A core imports its siblings and the pure part of the standard library, and calls nothing outside."""
    match = re.match(r"((?:quorum|controller|broker)(?:/\w+)*?/(?:core|health))/", path)
    if match is None:
        return []
    siblings = match[1].replace("/", ".")
    wrong: list[Finding] = []
    for line, module in imported(path, text):
        root = module.split(".", 1)[0]
        if module == siblings or module.startswith(siblings + "."):
            continue
        if not path.startswith("quorum/") and module in PURE_RECORDS:
            continue
        if root not in sys.stdlib_module_names:
            wrong.append((line, f"a core imports only its siblings and the standard library, not {module}"))
        elif root in _IMPURE_MODULES:
            wrong.append((line, f"a core must not import {module}"))
    called = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = ((call.lineno, call.func.id) for call in called if isinstance(call.func, ast.Name))
    return wrong + [(line, f"a core must not call {name}()") for line, name in names if name in _IMPURE_CALLS]


def no_pickle(path: str, text: str) -> list[Finding]:
    """Nothing is decoded by a format that can run code; a test may look at whether pickle was touched."""
    if path in PICKLE_WATCHERS or not any(each in text for each in _UNSAFE_MODULES):
        return []
    return [
        (line, f"imports {module}")
        for line, module in imported(path, text)
        if module.split(".", 1)[0] in _UNSAFE_MODULES
    ]


def sizes(path: str, text: str) -> list[Finding]:
    """Functions and files stay small enough to be read at once."""
    wrong: list[Finding] = []
    lines = text.count("\n")
    lines_max = TEST_FILE_LINES_MAX if path.startswith("tests/") else FILE_LINES_MAX
    if lines > lines_max:
        wrong.append((1, f"has {lines} lines; at most {lines_max}"))
    for node in ast.walk(ast.parse(text)) if lines >= FUNCTION_LINES_MAX else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                wrong.append((node.lineno, f"{node.name} has {length} lines; at most {FUNCTION_LINES_MAX}"))
    return wrong


def no_sleep(path: str, text: str) -> list[Finding]:
    """A test waits for a condition, never for time to pass; a sleep of 0 only lets others run."""
    if not path.startswith("tests/") or "sleep" not in text:
        return []
    tree = ast.parse(text)
    names = {"time.sleep", "asyncio.sleep", "trio.sleep", "anyio.sleep"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio", "trio", "anyio"}:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "sleep"}
        elif isinstance(node, ast.Import):
            names |= {
                f"{alias.asname}.sleep"
                for alias in node.names
                if alias.name in {"time", "asyncio"} and alias.asname
            }
    wrong: list[Finding] = []
    for name, call in _calls(tree, ""):
        zero = call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        if ast.unparse(call.func) in names and not zero and (path, name) not in SLEEPS_ALLOWED:
            wrong.append((call.lineno, "sleeps; wait for a condition with a deadline instead"))
    return wrong


def _calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call below a node, with the name of the innermost function that it stands in."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, inside)


def no_marks(_path: str, text: str) -> list[Finding]:
    """Nothing is left to be done later in a comment: it is done, or it is an issue."""
    return [
        (number, f"has the mark {found[0]}")
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _MARKS.search(line))
    ]


def no_machine_paths(_path: str, text: str) -> list[Finding]:
    """No path of one person's machine."""
    return [
        (number, f"names a path of one machine: {found[0]}")
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _MACHINE_PATHS.search(line))
    ]
