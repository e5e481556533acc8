"""Every `Source:` names something that a reader can open.

That is a page of this repository with its section or row, a file of it, or a work from outside of a kind that
is listed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.rules import REPOSITORY, python_files

#: works from outside that a reader finds by these words
OUTSIDE = re.compile(
    r"our own|\bKIP-\d|\bRFC \d|\bRaft\b|[Dd]issertation|\bZooKeeper|\bZOOKEEPER-\d|\bKAFKA-\d|\bSPARK-\d"
    r"|Kafka|\bSpark\b|etcd|zookeeper\.jute|Curator|kazoo|librdkafka|pysyncobj|xerial|kio\b"
    r"|(?:Processor|Cnxn|Archive|Command|Commands|Stats|Server|Tracker|Manager|Builder|Exception|Coordinator)\b"
    r"|(?:OpCode|WatcherType|MultiOperationRecord|DataTree|Stat)\b|\w\(\d\)|\.json\b"
    r"|Prometheus|Grafana|OpenAPI|HTML|HTTP|JEP \d|toxiproxy|libfaketime|strace|maven|Maven|Jepsen|maelstrom"
    r"|asyncio|msgpack|Python|Arrow IPC|Kleppmann|Lauck|FAST '18|Gong"
    r"|Lowe|W3C|[Ff]etch standard|standalone guide|prometheus_client"
    r"|kafka|Protocol Buffers|administrator's guide"
)
PAGE = re.compile(r"[\w./-]+\.md\b")
FILE = re.compile(r"(?<![\w.])[\w./-]+\.(?:py|toml|java)\b")
MODULE = re.compile(
    r"(?<![\w./-])(?:quorum|controller|broker|pipeline|tests)(?!\.(?:md|toml|id)\b)(?:\.\w+)+"
)


def paragraphs(text: str) -> Iterator[str]:
    """Yield what the docstrings of a file name as their sources, each on one line."""
    for node in ast.walk(ast.parse(text)) if "Source:" in text else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for each in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                if found := re.search(r"(?<![\w`])Source:\s+(.+)", each, re.DOTALL):
                    yield re.sub(r"\s*\n\s*", " ", found.group(1)).strip()


def references(paragraph: str) -> Iterator[str]:
    """Yield the single references, which semicolons part outside of brackets."""
    depth, start = 0, 0
    for at, each in enumerate(paragraph):
        depth += (each in "([") - (each in ")]")
        if each == ";" and not depth:
            yield paragraph[start:at].strip()
            start = at + 1
    yield paragraph[start:].strip()


def unresolved(reference: str, folder: Path) -> str:
    """Return what of a reference cannot be opened; "" if all can."""
    pages = list(PAGE.finditer(reference))
    for page, following in zip(pages, [*pages[1:], None], strict=False):
        if not (REPOSITORY / page.group()).is_file():
            return page.group()
        places = reference[page.end() : following.start() if following else None]
        text = (REPOSITORY / page.group()).read_text(encoding="utf-8")
        headings = set(re.findall(r"^#+ (.*)$", text, re.MULTILINE))
        rows = [*re.findall(r"\[[\w.]+\]", places), *re.findall(r"\bD\d+\b", places)]
        lost = {name for name in re.findall(r'"([^"]+)"', places) if name not in headings}
        lost |= {row for row in rows if f"| {row.strip('[]')} |" not in text and f"| {row}" not in text}
        if lost:
            return f"{page.group()}: {', '.join(sorted(lost))}"
    files: list[str] = FILE.findall(reference)
    for name in files:
        if not any((base / name).is_file() for base in (REPOSITORY, folder, REPOSITORY / "deploy")):
            return name
    modules: list[str] = MODULE.findall(reference)
    for name in modules:
        parts = name.split(".")
        ahead = ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]
        if not any(
            (REPOSITORY / f"{each}{end}").is_file() for each in ahead for end in (".py", "/__init__.py")
        ):
            return name
    return "" if pages or files or modules or OUTSIDE.search(reference) else reference


def test_every_source_names_what_a_reader_can_open() -> None:
    lost = [
        f"{path}: {what}"
        for path in python_files()
        for paragraph in paragraphs((REPOSITORY / path).read_text(encoding="utf-8"))
        for reference in references(paragraph)
        if (what := unresolved(reference, (REPOSITORY / path).parent))
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("reference", "lost"),
    [
        ("raft.md, Journal", "raft.md"),
        ('docs/internals/consensus.md, "Marriage"', "docs/internals/consensus.md: Marriage"),
        ("docs/internals/consensus.md, D99", "docs/internals/consensus.md: D99"),
        ("docs/internals/requirements.md, [0.A], [7.x]", "docs/internals/requirements.md: [7.x]"),
        ("quorum.nowhere.at_all", "quorum.nowhere.at_all"),
        ("the design of brokers", "the design of brokers"),
        ("KIP-380", ""),
        ('docs/internals/consensus.md, "Membership", D4; Raft §5.3', ""),
        ("quorum.client", ""),
    ],
)
def test_what_cannot_be_opened_is_found(reference: str, lost: str) -> None:
    assert unresolved(reference, REPOSITORY / "quorum") == lost
