"""`quorate shell`: reads and changes znodes by hand, one command or interactively."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from quorum.cli.commands.status import add_sasl_options, add_tls_options

if TYPE_CHECKING:
    from quorum.client import Client

HELP = "read and change znodes"
DESCRIPTION = (
    "Connect to the quorum as a ZooKeeper client and run one COMMAND, or ask for commands until exit."
)
EXAMPLES = """\
examples:
  quorate shell                                     interactive; `help` lists the commands
  quorate shell create /app hello
  quorate shell --hosts 10.0.0.1:2181,10.0.0.2:2181 get /app
  quorate shell --peer-secret data/peer.secret delete /brokers/topics/broken
"""

DEFAULT_HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and the command."""
    parser.add_argument(
        "--hosts",
        metavar="H:P,…",
        default=DEFAULT_HOSTS,
        help=f"client ports of the quorum (default: {DEFAULT_HOSTS})",
    )
    add_tls_options(parser)
    add_sasl_options(parser)
    parser.add_argument(
        "--peer-secret",
        metavar="FILE",
        type=Path,
        help="the brokers' peer secret, to change their znodes where these are protected",
    )
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    parser.add_argument(
        "words", metavar="COMMAND", nargs=argparse.REMAINDER, help="what to do, with its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Hand over to the shell; returns its exit code."""
    from quorum.cli.shell import run as run_shell

    return run_shell(
        arguments.hosts, arguments.words, as_json=arguments.json, prove=prover(arguments.peer_secret)
    )


def prover(file: Path | None) -> Callable[[Client], Awaitable[None]] | None:
    """Return what proves the secrets of a file for a client."""
    if file is None:
        return None
    from quorum.client import NoNodeError
    from quorum.config.node import read_peer_secrets
    from quorum.errors import UsageError
    from quorum.metadata import paths
    from quorum.metadata.protection import prove_secrets
    from quorum.metadata.records import decode_cluster_id
    from quorum.metadata.trust import Trust

    secrets = read_peer_secrets(file)

    async def prove(client: Client) -> None:
        try:
            data, _ = await client.get(paths.CLUSTER_ID)
        except NoNodeError as error:
            problem = f"{paths.CLUSTER_ID} does not exist: no broker was ever here"
            raise UsageError(
                problem, "leave --peer-secret out, or name the brokers' quorum by --hosts"
            ) from error
        trust = Trust(secrets, decode_cluster_id(data))
        await prove_secrets(client, trust)

    return prove
