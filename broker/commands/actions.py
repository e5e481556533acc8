"""The actions of a subcommand that asks brokers, as `quorate topics list`, and the options of all of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def add_actions(
    parser: argparse.ArgumentParser, rows: Iterable[tuple[str, str, Callable[..., Any]]]
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Declare actions with --bootstrap and --json; yield each with its parser, for options of its own.

    Args:
        parser: of the subcommand.
        rows: (name, what it does, what does it); the last is found in `arguments.act`.
    """
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--bootstrap",
        metavar="HOST:PORT,…",
        default=DEFAULT_BOOTSTRAP,
        help=f"brokers to ask (default: {DEFAULT_BOOTSTRAP})",
    )
    shared.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text, act in rows:
        action = actions.add_parser(name, allow_abbrev=False, parents=[shared], help=text, description=text)
        action.set_defaults(act=act)
        yield name, action
