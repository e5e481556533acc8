"""`quorate secret`: the steps by which the peer secret is replaced while nodes and brokers run.

Does what no node and no broker can do alone: it sees that every broker is ready, and rewrites what hangs on
the former secret in the quorum (quorum.metadata.rotation). Keeps nothing: a run that was interrupted is made
again.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from quorum.cli.commands.shell import DEFAULT_HOSTS
from quorum.cli.commands.status import add_sasl_options, add_tls_options
from quorum.errors import Fault, QuorateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorum.client import Client
    from quorum.metadata.trust import Trust

HELP = "make a peer secret; rewrite what hangs on the former one"
DESCRIPTION = """\
Replace the secret of security.peer_secret_file while everything runs. A file holds one secret a line: the
first is proved, each is accepted. Files are read again within a minute, or on SIGHUP.

  1. quorate secret new makes one; put it below the old one in the file of every node and every broker
  2. swap the two lines, in every file
  3. quorate secret rotate, with such a file: what hangs on the old one in the quorum follows the new one
  4. cut the old line, in every file; connections that it opened stay until they end

rotate changes nothing before every registered broker has the new secret first, and nothing when all is done.
It may be interrupted, and run again."""
EXAMPLES = """\
examples:
  quorate secret new >> data/peer.secret
  quorate secret rotate --hosts 10.0.0.1:2181 --peer-secret data/peer.secret
"""
_TIMEOUT_MS = 30_000.0
_SHOWN_MAX = 5


class BrokersBehindError(QuorateError):
    """Brokers still sign with the former secret; nothing was rewritten for them."""

    fault = Fault.OPERATOR


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare actions and options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("new", help="print a random secret, as a line of the file", allow_abbrev=False)
    text = "let what hangs on the former secret in the quorum follow the first one of a file"
    rotate = actions.add_parser("rotate", help=text, description=text, allow_abbrev=False)
    rotate.add_argument(
        "--hosts",
        metavar="H:P,…",
        default=DEFAULT_HOSTS,
        help=f"client ports of the brokers' quorum (default: {DEFAULT_HOSTS})",
    )
    add_tls_options(rotate)
    add_sasl_options(rotate)
    rotate.add_argument(
        "--peer-secret",
        metavar="FILE",
        type=Path,
        required=True,
        help="the new secret, below it the old one",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make a secret, or rewrite what hangs on the former one; returns the exit code."""
    if arguments.action == "new":
        from secrets import token_hex

        print(token_hex(32))
        return 0
    from quorum.config.logins import PROVING
    from quorum.config.node import read_peer_secrets
    from quorum.platform.tls import DIALLING

    secrets = read_peer_secrets(arguments.peer_secret)

    async def ask() -> int:
        from quorum.client import Client

        try:
            client = Client(arguments.hosts, tls=DIALLING.get(), sasl=PROVING.get())
        except ValueError as error:
            raise UsageError(str(error), "write --hosts host:port,host:port") from error
        await client.start(_TIMEOUT_MS)
        try:
            return await _rotate(client, secrets)
        finally:
            await client.close()

    return asyncio.run(ask())


async def _rotate(client: Client, secrets: Sequence[str]) -> int:
    from quorum.metadata.protection import prove_secrets
    from quorum.metadata.rotation import rewrite_access, write_check_value

    trust = await _trust(client, secrets)
    if trust is None:
        print("no broker was ever here: nothing hangs on a secret, and nodes need no more than their files")
        return 0
    await prove_secrets(client, trust)
    await _see_that_all_follow(client, trust)
    done = await rewrite_access(client, trust)
    # Who came while the lists were rewritten may have made more that hangs on the former one.
    await _see_that_all_follow(client, trust)
    moved = await write_check_value(client, trust)
    if done.changed or moved:
        told = f"rewrote the access lists of {done.changed} of {done.seen} znodes"
        print(told + (", and the check value" if moved else ""))
    else:
        print(f"nothing to rewrite: {done.seen} znodes and the check value follow the first secret")
    if done.foreign:
        shown = ", ".join(done.foreign[:_SHOWN_MAX])
        more = f" and {len(done.foreign) - _SHOWN_MAX} more" if len(done.foreign) > _SHOWN_MAX else ""
        print(f"left alone, for others protect them: {shown}{more}")
    print(
        "next: cut every line but the first, in the file of every node and every broker"
        if len(secrets) > 1
        else "next: nothing, once the file of every node and every broker has this one line"
    )
    return 0


async def _trust(client: Client, secrets: Sequence[str]) -> Trust | None:
    """Return the trust of the secrets, one of which is the cluster's; None where no broker was ever."""
    from quorum.metadata import paths
    from quorum.metadata.reading import read_node
    from quorum.metadata.records import decode_cluster_id
    from quorum.metadata.rotation import check_value
    from quorum.metadata.trust import Trust

    cluster_id = await read_node(client, paths.CLUSTER_ID)
    check = await read_node(client, paths.PEER_CHECK_VALUE)
    if cluster_id is None or check is None:
        return None
    trust = Trust(secrets, decode_cluster_id(cluster_id.data))
    if check_value(check.data) not in trust.check_values:
        problem = "--peer-secret: none of its secrets is that of the brokers"
        raise UsageError(problem, "give a file with the new secret and, below it, the present one")
    return trust


async def _see_that_all_follow(client: Client, trust: Trust) -> None:
    from quorum.metadata.rotation import brokers_behind

    former, unknown = await brokers_behind(client, trust)
    if former:
        raise BrokersBehindError(
            f"{_brokers(former)} not the first secret of --peer-secret first",
            "swap the lines of their files and run this again once they have read them (SIGHUP, or a minute)",
        )
    if unknown:
        raise BrokersBehindError(
            f"{_brokers(unknown)} none of the secrets of --peer-secret, by their registrations",
            "put the new secret into their files; delete a registration that is no broker's",
        )


def _brokers(broker_ids: Sequence[int]) -> str:
    listed = ", ".join(map(str, broker_ids))
    return f"broker {listed} has" if len(broker_ids) == 1 else f"brokers {listed} have"
