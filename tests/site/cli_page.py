"""docs/reference/cli.md: every command with its arguments and options, as its parser declares them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Final

from quorum.cli.main import build_parser
from tests.site.tables import NOTE, anchored, cell, joined, sentence, table

_HEAD: Final = f"""# The command `quorate`

Every command with its options. {NOTE} `quorate COMMAND --help` says the same.

| exit code | when |
|---|---|
| 0 | It is done. |
| 1 | It failed: standard error has `error: …` and `remedy: …`. |
| 2 | It was asked wrongly. Nothing was done. |
| 130 | It was interrupted. |
| 141 | Who reads its output has gone. |

Where a command has other codes, its description says so.
"""


def _form(action: argparse.Action) -> str:
    """Return an option or argument as it is typed."""
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    value = value or action.dest.upper()
    if action.nargs in ("+", "*"):
        value += " …"
    if not action.option_strings:
        return value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def _rows(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    anchor = name.replace(" ", "-")
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        if action.help == argparse.SUPPRESS:
            continue
        option = action.option_strings[-1] if action.option_strings else action.dest
        words = (action.help or "") % {**vars(action), "prog": parser.prog}
        needed = " Must be given." if action.required and action.option_strings else ""
        said = f"{sentence(words)}.{needed}" if words else needed.strip()
        yield (anchored(f"{anchor}.{option.strip('-')}", _form(action)), cell(said))


def _prose(text: str) -> str:
    """Return words for a terminal as paragraphs, and lines of them that are indented as they are."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.startswith("  "):
            parts.append(f"```text\n{paragraph}\n```")
            continue
        parts.append(f"{sentence(cell(paragraph).rstrip('.:'))}.")
    return "\n\n".join(parts)


def _command(name: str, parser: argparse.ArgumentParser, about: str, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}"
    description = parser.description or about
    if about.partition(" ")[0] not in ("", description.partition(" ")[0].lower()) and about != description:
        yield f"{sentence(about)}."
    yield _prose(description)
    if rows := list(_rows(name, parser)):
        yield table(("option", "what it does"), rows)
    examples, _, rest = (parser.epilog or "").partition("examples:\n")[2].partition("\n\n")
    if examples:
        lines = [each.removeprefix("  ") for each in examples.rstrip().splitlines()]
        yield "\n".join(("```console", *(f"$ {each}" for each in lines), "```"))
    if rest.strip():
        yield _prose(rest)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for sub, its in action.choices.items():
                yield from _command(f"{name} {sub}", its, helps.get(sub, ""), min(depth + 1, 4))


def page() -> str:
    """Return the page as the parser is."""
    return joined([_HEAD, *_command("quorate", build_parser(), "", 2)])
