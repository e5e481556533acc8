"""What subcommands that ask brokers share, as `quorate topics list`: actions, options, client, reports."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.commands.broker import require_extra
from quorum.cli.commands.status import add_kafka_sasl_options, add_tls_options
from quorum.config.logins import read_login
from quorum.errors import printable
from quorum.platform.tls import DIALLING

if TYPE_CHECKING:
    from broker.client.partition_admin import PartitionAdminClient, PartitionResult
    from broker.client.proofs import BrokerProof
    from quorum.metadata.paths import PartitionKey

#: the ports of `quorate up`
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
TIMEOUT_MS: Final = 30_000

#: Carries an action out and returns the exit code.
Act = Callable[["PartitionAdminClient", argparse.Namespace], Awaitable[int]]


def add_actions(
    parser: argparse.ArgumentParser, rows: Iterable[tuple[str, str, Act]]
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
    add_tls_options(shared)
    add_kafka_sasl_options(shared)
    shared.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text, act in rows:
        action = actions.add_parser(name, allow_abbrev=False, parents=[shared], help=text, description=text)
        action.set_defaults(act=act)
        yield name, action


def _proof(arguments: argparse.Namespace) -> BrokerProof | None:
    from broker.client.proofs import BrokerProof

    name, file = arguments.kafka_sasl, arguments.kafka_password_file
    login = read_login(name, file, ("--sasl", "--password-file"))
    return None if login is None else BrokerProof(login, arguments.kafka_mechanism)


def run_action(arguments: argparse.Namespace) -> int:
    """Ask brokers and print; returns the exit code."""
    require_extra()
    from broker.client.partition_admin import PartitionAdminClient

    proof = _proof(arguments)

    async def ask() -> int:
        act: Act = arguments.act
        async with PartitionAdminClient(
            arguments.bootstrap, timeout_ms=TIMEOUT_MS, tls=DIALLING.get(), sasl=proof
        ) as client:
            return await act(client, arguments)

    return asyncio.run(ask())


def report_partitions(
    arguments: argparse.Namespace, results: Mapping[PartitionKey, PartitionResult], done: str
) -> int:
    """Print what became of each partition; returns the exit code, 1 if one was refused.

    Args:
        arguments: those of the action.
        results: by partition.
        done: what happened to the others, in a word or two.
    """
    from controller.wire.codes import ErrorCode, code_name

    fine = ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED
    refused = {key: each for key, each in results.items() if each.error_code not in fine}
    unneeded = sum(each.error_code == ErrorCode.ELECTION_NOT_NEEDED for each in results.values())
    if arguments.json:
        rows = [
            {
                "topic": key.topic,
                "partition": key.partition,
                "error": code_name(result.error_code) if result.error_code else None,
                "message": result.message,
            }
            for key, result in results.items()
        ]
        print(json.dumps(rows))
        return 1 if refused else 0
    for key, result in refused.items():
        story = result.message or code_name(result.error_code)
        print(f"{printable(key.topic)}-{key.partition}: {printable(story)}", file=sys.stderr)
    rest = f", {unneeded} did not need it" if unneeded else ""
    count = len(results) - unneeded - len(refused)
    print(f"{done} {count} of {len(results)} partitions{rest}")
    return 1 if refused else 0


def print_rows(
    arguments: argparse.Namespace, fields: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> int:
    """Print rows as JSON or as a table; returns the exit code."""
    print(json.dumps(fields) if arguments.json else "\n".join(lay_out(fields, columns)))
    return 0


def lay_out(fields: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Return the lines of a table."""
    from quorum.platform.terminal import table

    rows = [
        [printable(value) if isinstance(value := each[name], str) else value for name in columns]
        for each in fields
    ]
    return table([name.upper().replace("_", "-") for name in columns], rows)
