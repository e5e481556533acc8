"""The command `quorate`: finds the subcommand, runs it, and turns errors into two lines and an exit code.

Exit codes: 0 good, 1 failure, 2 usage. An expected error is never a traceback: `error: …` names the thing and
its value, `remedy: …` says what to do. The subcommands of this package stand in `quorum.cli.commands`; other
distributions add theirs by an entry point in the group `quorate.commands` whose value is a module of the same
shape (`Command`).
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from contextvars import copy_context
from importlib import import_module
from pathlib import Path
from typing import NoReturn, Protocol, cast

from quorum import __version__
from quorum.admin.client import use_token
from quorum.config.dialling import read_dialling
from quorum.config.logins import PROVING, read_login
from quorum.config.profiles import DEFAULT_FILE, FILE_VARIABLE, NAME_VARIABLE, read_profile, use_profile
from quorum.errors import ConfigError, QuorateError, UsageError, printable, remedy_for_os, told_by_os
from quorum.platform.logs import is_json
from quorum.platform.terminal import styled
from quorum.platform.tls import DIALLING

#: exit code of a command whose reader has gone, as shells tell SIGPIPE; 1 means damage to some commands
BROKEN_PIPE = 128 + 13
ENTRY_POINT_GROUP = "quorate.commands"
#: what stays of an error although it is not printable: a story has lines
_KEPT = "\n\t"


class Command(Protocol):
    """The shape of a module that is a subcommand."""

    #: one line for the list of commands
    HELP: str
    #: what it does, in sentences, and examples; shown as it is
    DESCRIPTION: str
    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options and arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code, raises QuorateError for an expected failure."""


#: subcommand → its module in `quorum.cli.commands`; only that of the command line is loaded
_BUILT_IN = {
    "up": "up",
    "down": "down",
    "serve": "serve",
    "status": "status",
    "console": "console",
    "top": "top",
    "doctor": "doctor",
    "bundle": "bundle",
    "members": "members",
    "shell": "shell",
    "journal": "journal",
    "snapshot": "snapshot",
    "changelog": "changelog",
    "backup": "backup",
    "restore": "restore",
    "certs": "certs",
    "users": "users",
    "secret": "secret",
    "raise-epochs": "raise_epochs",
    "import": "import_cluster",
}

_EXAMPLES = """\
examples:
  quorate up                               three nodes (2181-2183) and brokers (9092-9094)
  quorate status                           who leads, how far each node is
  quorate shell ls /                       one command against the quorum
  quorate --profile prod topics list       what is dialled and proved is in a file
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors look like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        argv: the arguments after the program's name; None: those of the process.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name, or another process's word, may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    # What one command line dials with and proves is none of its caller's, nor of the next one.
    return copy_context().run(_run, words)


def _run(words: Sequence[str]) -> int:
    try:
        name, command = _before_parsing(words)
        parser = build_parser(command)
        if name:
            use_profile(parser, read_profile(name, os.environ.get(FILE_VARIABLE, "")))
        arguments, unknown = parser.parse_known_args(words)
        if unknown:
            named = f"{parser.prog} {arguments.command}" if arguments.command else parser.prog
            # Without values, one of which may be a secret.
            shown = " ".join(re.sub(r"=.*", "=***", word, flags=re.DOTALL) for word in unknown)
            raise UsageError(f"{named} does not know {shown}", f"see {named} --help")
        if arguments.command is None:
            parser.print_help(sys.stderr)
            return 2
        if arguments.token_file is not None:
            use_token(Path(arguments.token_file))
        _use_tls(arguments)
        _use_login(arguments)
        code = cast("Command", arguments.module).run(arguments)
        # here, where an error still has two lines; at the interpreter's end it would be a traceback
        print(end="", flush=True)
        return code
    except UsageError as error:
        _tell(error)
        return 2
    except QuorateError as error:
        _tell(error)
        return 1
    except BrokenPipeError:
        # the reader has gone (`quorate … | head`); the interpreter must not complain about it at exit
        sys.stderr.close()
        return BROKEN_PIPE
    except OSError as error:
        doing = f"a file or stream that `{' '.join(['quorate', *words[:1]])}` uses"
        _tell(QuorateError(told_by_os(error, doing), remedy_for_os(error)))
        return 1
    except KeyboardInterrupt:
        return 130


def _use_tls(arguments: argparse.Namespace) -> None:
    """Dial by TLS from here on where a command says whom to believe, and else without."""
    options = {key: getattr(arguments, key, None) for key in ("ca", "cert", "key")}
    DIALLING.set(read_dialling(**options, serves=getattr(arguments, "serves_tls", False)))


def _use_login(arguments: argparse.Namespace) -> None:
    """Prove from here on to nodes what a command says by --sasl, and else nothing."""
    name, file = getattr(arguments, "sasl", None), getattr(arguments, "password_file", None)
    PROVING.set(read_login(name, file, ("--sasl", "--password-file")))


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; its errors are UsageErrors.

    Args:
        command: the only subcommand that it will be asked for; None, or a name that there is not: any.
    """
    parser = _Parser(
        prog="quorate",
        allow_abbrev=False,
        description="A Raft-replicated metadata quorum that ZooKeeper clients can use unchanged.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"quorate {__version__}")
    parser.add_argument(
        "--token-file", metavar="FILE", help="token of the admin port that is asked, where it needs one"
    )
    _add_profile(parser)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=_Parser
    )
    for name, module in _commands(command).items():
        sub = commands.add_parser(
            name,
            allow_abbrev=False,
            help=module.HELP,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(module=module)
    return parser


def _add_profile(parser: argparse.ArgumentParser) -> None:
    about = f"take what is dialled and proved from this table of {DEFAULT_FILE} ({FILE_VARIABLE})"
    parser.add_argument("--profile", metavar="NAME", help=about)


def _before_parsing(words: Sequence[str]) -> tuple[str, str | None]:
    """Return (profile, command), before there is a parser of all words.

    Returns:
        The profile that the words before the command name, else the environment ("": none). The command is
        None where there is none, or where what stands before it asks for something else (--help).
    """
    before = _Parser(prog="quorate", add_help=False, allow_abbrev=False)
    _add_profile(before)
    before.add_argument("--token-file")
    before.add_argument("rest", nargs=argparse.REMAINDER)
    found, unknown = before.parse_known_args(words)
    profile = os.environ.get(NAME_VARIABLE, "") if found.profile is None else str(found.profile)
    return profile, found.rest[0] if found.rest and not unknown else None


def _commands(command: str | None) -> dict[str, Command]:
    """Return the module of a command, or of all where there is none of that name.

    Other distributions' commands cannot take over a name of ours.
    """
    if command in _BUILT_IN:
        return {command: _built_in(command)}
    from importlib.metadata import entry_points  # noqa: PLC0415  (takes as long as to load a command)

    others = {each.name: each for each in entry_points(group=ENTRY_POINT_GROUP) if each.name not in _BUILT_IN}
    if command in others:
        return {command: cast("Command", others[command].load())}
    loaded = {name: cast("Command", entry.load()) for name, entry in others.items()}
    return {name: _built_in(name) for name in _BUILT_IN} | loaded


def _built_in(command: str) -> Command:
    return cast("Command", import_module(f"quorum.cli.commands.{_BUILT_IN[command]}"))


def _tell(error: QuorateError) -> None:
    """Print an error and its remedy; a configuration has a pair of lines for each problem.

    Nothing of what it names (paths, values, words of another process) acts on the terminal.
    """
    if isinstance(error, ConfigError):
        pairs = [(f"{row.field} = {row.value}: {row.problem}", row.remedy) for row in error.problems]
    else:
        pairs = [(error.message, error.remedy)]
    for message, remedy in pairs:
        if is_json():
            logging.getLogger("quorate.process").critical("%s", message, extra={"remedy": remedy})
            continue
        _print_line("error:", "red", message)
        if remedy:
            _print_line("remedy:", "green", remedy)


def _print_line(label: str, colour: str, text: str) -> None:
    print(f"{styled(label, colour, sys.stderr)} {printable(text, kept=_KEPT)}", file=sys.stderr)
