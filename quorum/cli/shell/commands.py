"""What can be typed into the shell: words in, one command of a closed union out.

Pure. Every refusal is a UsageError that names the word and says what to write instead. The text of `help`
comes from the same table as the parsing, so it cannot go stale.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from quorum.cli.shell.quotas import LIMITS
from quorum.client import ANY_VERSION
from quorum.errors import UsageError


class Ls(NamedTuple):
    """List the children of a node."""

    path: str


class Get(NamedTuple):
    """Show the data of a node."""

    path: str
    with_stat: bool


class Set(NamedTuple):
    """Replace the data of a node."""

    path: str
    data: bytes
    version: int


class Create(NamedTuple):
    """Create a node."""

    path: str
    data: bytes
    ephemeral: bool
    sequential: bool
    parents: bool


class Delete(NamedTuple):
    """Delete a node."""

    path: str
    version: int
    recursive: bool


class ShowStat(NamedTuple):
    """Show the Stat of a node."""

    path: str


class Watch(NamedTuple):
    """Follow the changes of a node."""

    path: str
    with_children: bool
    #: Events after which to end; None: until interrupted.
    events_max: int | None


class Sync(NamedTuple):
    """Wait until the server is up to date."""

    path: str


class SetQuota(NamedTuple):
    """Limit what a subtree may hold."""

    path: str
    #: {name in the text of the limits node: number}
    limits: Mapping[str, int]


class ListQuota(NamedTuple):
    """Show limits, and what is used."""

    path: str


class DelQuota(NamedTuple):
    """Take limits away; without names all."""

    path: str
    names: tuple[str, ...]


class Help(NamedTuple):
    """Explain one command, or list all."""

    topic: str | None


class Quit(NamedTuple):
    """Leave the interactive shell."""


Command = (
    Ls | Get | Set | Create | Delete | ShowStat | Watch | Sync | SetQuota | ListQuota | DelQuota | Help | Quit
)


class Parsed(NamedTuple):
    """A command, and whether its result is wanted as JSON."""

    command: Command
    as_json: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"{self.prog}: {message}", f"usage: {self.format_usage().removeprefix('usage: ').strip()}"
        )


#: {command: one line of help}, in the order of `help`.
SUMMARIES: Final = {
    "ls": "list the children of a node",
    "get": "show the data of a node",
    "set": "replace the data of a node",
    "create": "create a node",
    "delete": "delete a node",
    "stat": "show versions, times and owner of a node",
    "watch": "follow the changes of a node, also its creation and deletion",
    "sync": "wait until the connected server has everything that was committed before",
    "setquota": "limit what a node and everything below it may hold",
    "listquota": "show the limits of a node, and what is used",
    "delquota": "take limits away; without an option all of them",
    "help": "list the commands, or explain one",
    "quit": "leave the interactive shell (also: exit, Ctrl-D)",
}

_ALIASES: Final = {"exit": "quit", "rm": "delete"}


def split_line(line: str) -> list[str]:
    """Split a typed line into words; quotes and backslashes work as in a shell."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(
            f"{line.strip()}: {error}", "close the quote, or escape it with a backslash"
        ) from error


def parse(words: Sequence[str]) -> Parsed:
    """Understand one command; --json may stand in front of it or among its options."""
    rest = list(words)
    as_json = False
    while rest and rest[0] == "--json":
        as_json = True
        del rest[0]
    if not rest:
        raise UsageError("no command was given", f"write one of: {', '.join(SUMMARIES)}")
    name = _ALIASES.get(rest[0], rest[0])
    if name not in SUMMARIES:
        raise UsageError(f"{rest[0]!r} is no command", f"write one of: {', '.join(SUMMARIES)}")
    if rest[1:] in (["-h"], ["--help"]):
        return Parsed(Help(name), as_json)
    arguments = _parser(name).parse_args(rest[1:])
    return Parsed(_command(name, arguments), as_json or arguments.json)


def help_text(topic: str | None) -> str:
    """Explain one command, or list all."""
    if topic is None:
        width = max(map(len, SUMMARIES))
        lines = [f"  {name.ljust(width)}  {summary}" for name, summary in SUMMARIES.items()]
        return "\n".join(
            [
                "commands:",
                *lines,
                "",
                "help COMMAND explains one; --json behind any command prints its result as JSON",
            ]
        )
    name = _ALIASES.get(topic, topic)
    if name not in SUMMARIES:
        raise UsageError(f"{topic!r} is no command", f"write one of: {', '.join(SUMMARIES)}")
    return _parser(name).format_help().rstrip()


def _parser(name: str) -> _Parser:
    parser = _Parser(prog=name, description=SUMMARIES[name], add_help=False, allow_abbrev=False)
    if name in ("setquota", "delquota"):
        _add_limits(parser, with_numbers=name == "setquota")
    if name in ("get", "set", "create", "delete", "stat", "watch", "setquota", "listquota", "delquota"):
        parser.add_argument("path", metavar="PATH")
    match name:
        case "ls" | "sync":
            parser.add_argument("path", metavar="PATH", nargs="?", default="/", help="default: /")
        case "get":
            parser.add_argument(
                "-s", "--stat", action="store_true", help="show versions, times and owner too"
            )
        case "set":
            parser.add_argument(
                "data", metavar="DATA", help="text, stored as UTF-8; write -- in front if it begins with -"
            )
            _add_version(parser)
        case "create":
            parser.add_argument(
                "data", metavar="DATA", nargs="?", default="", help="text, stored as UTF-8; default: empty"
            )
            parser.add_argument(
                "-e", "--ephemeral", action="store_true", help="vanishes with the session of this shell"
            )
            parser.add_argument(
                "-s", "--sequential", action="store_true", help="append a counter of the parent"
            )
            parser.add_argument("-p", "--parents", action="store_true", help="create missing parents, empty")
        case "delete":
            _add_version(parser)
            parser.add_argument(
                "-r", "--recursive", action="store_true", help="delete everything below it too"
            )
        case "watch":
            parser.add_argument(
                "-c", "--children", action="store_true", help="also children that come and go"
            )
            parser.add_argument(
                "-n",
                "--count",
                type=int,
                default=None,
                metavar="N",
                help="end after N events; default: Ctrl-C ends it",
            )
            parser.epilog = (
                "A watch fires once and is armed again: changes in quick succession may appear as one."
            )
        case "help":
            parser.add_argument("topic", metavar="COMMAND", nargs="?")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, one object per line")
    return parser


def _add_limits(parser: argparse.ArgumentParser, *, with_numbers: bool) -> None:
    for option, text in (
        ("-n", "nodes; more are a warning"),
        ("-b", "bytes of data; more are a warning"),
        ("-N", "nodes; more are refused where limits.enforce_quota is set"),
        ("-B", "bytes of data; more are refused likewise"),
    ):
        if with_numbers:
            parser.add_argument(option, type=int, metavar="NUMBER", help=text)
        else:
            parser.add_argument(option, action="store_true", help=text)


def _limits(arguments: argparse.Namespace) -> dict[str, int]:
    given = {option: getattr(arguments, option) for option in LIMITS}
    for option, number in given.items():
        if number is not None and not 0 <= number < 2**63:
            problem = f"setquota -{option} {number}: a limit is from 0 to {2**63 - 1}"
            raise UsageError(problem, "delquota takes one away")
    limits = {LIMITS[option]: number for option, number in given.items() if number is not None}
    if not limits:
        raise UsageError("setquota: no limit was given", "write one or more of -n, -b, -N, -B with a number")
    return limits


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v",
        "--version",
        type=int,
        default=ANY_VERSION,
        metavar="N",
        help="only if the node has this version",
    )


def _command(name: str, arguments: argparse.Namespace) -> Command:
    if name == "help":
        return Help(arguments.topic)
    if name == "quit":
        return Quit()
    path = _path(arguments.path)
    match name:
        case "ls":
            return Ls(path)
        case "get":
            return Get(path, arguments.stat)
        case "set":
            return Set(path, _data(arguments.data), _version(arguments.version))
        case "create":
            return Create(
                # A sequential name may be empty: create -s /queue/ makes /queue/0000000000.
                arguments.path if arguments.sequential and arguments.path.endswith("/") else path,
                _data(arguments.data),
                arguments.ephemeral,
                arguments.sequential,
                arguments.parents,
            )
        case "delete":
            return Delete(path, _version(arguments.version), arguments.recursive)
        case "stat":
            return ShowStat(path)
        case "watch":
            if arguments.count is not None and arguments.count < 1:
                raise UsageError(
                    f"--count {arguments.count}: at least 1 event is needed",
                    "leave it out to watch until Ctrl-C",
                )
            return Watch(path, arguments.children, arguments.count)
        case "setquota":
            return SetQuota(path, _limits(arguments))
        case "listquota":
            return ListQuota(path)
        case "delquota":
            return DelQuota(
                path, tuple(name for option, name in LIMITS.items() if getattr(arguments, option))
            )
        case _:
            return Sync(path)


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise UsageError(f"path {path!r} does not start with '/'", f"write /{path}")
    # A trailing slash is what completion and habit leave; it never means another node.
    return path.rstrip("/") or "/"


def _version(version: int) -> int:
    if version < ANY_VERSION or version > 2**31 - 1:
        raise UsageError(
            f"version {version} is no version", "take the one that `stat` shows, or leave it out for any"
        )
    return version


def _data(text: str) -> bytes:
    # What was no UTF-8 on the command line comes back as the same bytes.
    return text.encode("utf-8", "surrogateescape")
