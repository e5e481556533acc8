"""Builds the site: the pages of docs/ and those of the root, as one folder for Zensical.

Pages link each other as they lie in the repository, so that they can be read there. The site holds pages
alone: a link to
another file of the repository becomes its path in code. Decides nothing about what the pages say.

Source: docs/internals/site.md.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.site.pages import parts
from tests.tidy.rules import REPOSITORY

# Pages that lie elsewhere in the repository, and their place in docs/.
ELSEWHERE: Final = {
    "ARCHITECTURE.md": "docs/internals/architecture.md",
    "CHANGELOG.md": "docs/reference/changelog.md",
    "CONTRIBUTING.md": "docs/internals/contributing.md",
    "DIVERGENCES.md": "docs/concepts/divergences.md",
    "GLOSSARY.md": "docs/concepts/glossary.md",
    "SECURITY.md": "docs/internals/security-policy.md",
}
SETTINGS: Final = REPOSITORY / "docs/zensical.toml"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
#: a heading, a link, or a code span
_PART = re.compile(rf"(?m:^#+ .*$)|{_LINK.pattern}|`([^`\n]+)`")
_ENTRY = re.compile(r'<a id="([^"]+)"></a>')


class DeadLinkError(Exception):
    """A page links a file that the repository does not have."""


def pages(repository: Path = REPOSITORY) -> dict[str, str]:
    """Return every page of the site: its path in the repository, and the one in the site's folder."""
    inside = {path.relative_to(repository).as_posix() for path in (repository / "docs").rglob("*.md")}
    return {path: path.removeprefix("docs/") for path in sorted(inside)} | {
        path: place.removeprefix("docs/") for path, place in ELSEWHERE.items()
    }


@cache
def entries(repository: Path = REPOSITORY) -> dict[str, str]:
    """Return {setting or metric as pages name it: its entry, as page#anchor of the repository}.

    A setting that a node and a broker both have is left out: which one is meant, the page alone knows.
    """
    found: dict[str, list[str]] = {}
    for page in ("docs/reference/settings.md", "docs/reference/metrics.md"):
        text = (repository / page).read_text("utf-8") if (repository / page).exists() else ""
        for anchor in _ENTRY.findall(text):
            name = re.sub(r"^(node|broker)\.(?=.*\.)", "", anchor)
            found.setdefault(name, []).append(f"{page}#{anchor}")
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def relinked(path: str, text: str, repository: Path = REPOSITORY) -> str:
    """Return the text of a page with links as they are in the site; settings and metrics link their entries.

    Raises DeadLinkError, which names the page and the link.
    """
    places = pages(repository)
    place = places[path]

    def link(found: re.Match[str]) -> str:
        mark, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if entry := entries(repository).get(found[5] or ""):
            page, _, anchor = entry.partition("#")
            there = posixpath.relpath(places[page], posixpath.dirname(place))
            return found[0] if page == path else f"[{found[0]}]({there}#{anchor})"
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not (repository / named).exists():
            raise DeadLinkError(f"{path} links {target}, which does not exist")
        if (there := places.get(named, named.removeprefix("docs/"))) == named:
            return f"`{named}`" if words.strip("`") == named else f"{words} (`{named}`)"
        return f"{mark}[{words}]({posixpath.relpath(there, posixpath.dirname(place))}{anchor})"

    return "".join(part if block else _PART.sub(link, part) for part, block in parts(text))


def stage(folder: Path, repository: Path = REPOSITORY) -> None:
    """Write all pages and pictures to folder/docs, with the settings of the build beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        repository / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.md", SETTINGS.name)
    )
    for path, place in pages(repository).items():
        target = folder / "docs" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(relinked(path, (repository / path).read_text("utf-8"), repository), "utf-8")
    shutil.copy(repository / "docs" / SETTINGS.name, folder / SETTINGS.name)


def build(folder: Path, repository: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """Build the site in folder/site; warnings are errors. Needs no network."""
    stage(folder, repository)
    return subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
