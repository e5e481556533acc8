"""`quorate transactions`: lists, describes and aborts transactions, through any broker.

A hanging one, which only logs know, is aborted with the brokers' secret.

Decides how they look to a person and to a script; what may be aborted is the coordinator's affair.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.commands.actions import Act, add_actions, print_rows, report_partitions, run_action
from quorum.errors import UsageError, printable

if TYPE_CHECKING:
    from broker.client import BrokerClient

HELP = "list, describe and abort transactions"
DESCRIPTION = """\
Ask the coordinator of transactions, or abort one that is open: its producer is fenced. A hanging transaction
is open in the logs of partitions, but not at the coordinator; its abort takes the brokers' peer secret."""
EXAMPLES = """\
examples:
  quorate transactions list
  quorate transactions describe payments
  quorate transactions abort payments
  quorate transactions abort --producer-id 1000 --producer-epoch 3
  quorate transactions hanging
  quorate transactions abort --producer-id 1000 --producer-epoch 3 --peer-secret data/peer.secret
"""


_MAYBE_HANGING: Final = (
    "look with `quorate transactions list`, and with `hanging` for what only logs know; "
    "--peer-secret aborts that"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    rows: tuple[tuple[str, str, Act], ...] = (
        ("list", "list the transactional ids", _list),
        ("describe", "show the producer and the partitions of transactional ids", _describe),
        ("hanging", "show what logs have open and the coordinator does not know", _hanging),
        ("abort", "abort an open transaction", _abort),
    )
    for name, action in add_actions(parser, rows):
        if name == "describe":
            action.add_argument("ids", metavar="ID", nargs="+")
        if name == "abort":
            action.add_argument("id", metavar="ID", nargs="?")
            action.add_argument("--producer-id", type=int, metavar="N", help="in place of ID")
            action.add_argument(
                "--producer-epoch", type=int, metavar="N", help="abort only while the producer has this epoch"
            )
            action.add_argument(
                "--peer-secret", type=Path, metavar="FILE", help="the brokers' peer secret, for a hanging one"
            )


run = run_action


async def _list(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.transactions import list_transactions

    fields = [
        {"transactional_id": each.transactional_id, "producer": each.producer_id, "state": each.state}
        for each in sorted(await list_transactions(client))
    ]
    return print_rows(arguments, fields, ("transactional_id", "producer", "state"))


async def _describe(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.transactions import describe_transaction

    rows = []
    for name in arguments.ids:
        found = await describe_transaction(client, name)
        rows.append(
            {
                "transactional_id": found.transactional_id,
                "producer": found.producer_id,
                "epoch": found.producer_epoch,
                "state": found.state,
                "timeout_ms": found.timeout_ms,
                "started": _when(found.started_ms),
                "partitions": " ".join(f"{topic}-{index}" for topic, index in sorted(found.partitions)),
            }
        )
    columns = ("transactional_id", "producer", "epoch", "state", "timeout_ms", "started", "partitions")
    return print_rows(arguments, rows, columns)


def _when(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return ""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


async def _hanging(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.hanging import hanging
    from controller.wire.codes import code_name

    found, unknown = await hanging(client)
    for key, code in unknown.items():
        print(f"{printable(key.topic)}-{key.partition}: not looked at, {code_name(code)}", file=sys.stderr)
    rows = [
        {
            "partition": f"{each.key.topic}-{each.key.partition}",
            "producer": each.producer_id,
            "epoch": each.producer_epoch,
            "first_offset": each.first_offset,
            "last_append": _when(each.last_ms),
        }
        for each in sorted(found)
    ]
    print_rows(arguments, rows, ("partition", "producer", "epoch", "first_offset", "last_append"))
    return 1 if unknown else 0


async def _abort(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.transactions import abort_transaction, describe_transaction, list_transactions

    name, producer_id = arguments.id, arguments.producer_id
    if (name is None) == (producer_id is None):
        raise UsageError("which transaction is not clear", "give either ID or --producer-id")
    if name is None:
        if arguments.peer_secret is not None:
            return await _abort_hanging(client, arguments)
        listed = await list_transactions(client)
        name = next((each.transactional_id for each in listed if each.producer_id == producer_id), None)
        if name is None:
            raise UsageError(f"no transactional id has producer {producer_id}", _MAYBE_HANGING)
    elif arguments.peer_secret is not None:
        problem = "--peer-secret is for a hanging transaction, which has no ID"
        raise UsageError(problem, "give --producer-id, or leave --peer-secret out")
    found = await describe_transaction(client, name)
    wanted = arguments.producer_epoch
    if wanted is not None and wanted != found.producer_epoch:
        problem = f"the producer of {name!r} has epoch {found.producer_epoch}, not {wanted}"
        remedy = "look again with `quorate transactions describe`, or with `hanging` for what only logs know"
        raise UsageError(problem, remedy)
    if found.state != "Ongoing":
        raise UsageError(f"{name!r} has no open transaction: its state is {found.state}", _MAYBE_HANGING)
    await abort_transaction(client, found)
    print(f"{name}: aborted")
    return 0


async def _abort_hanging(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.hanging import abort_in_logs, hanging
    from quorum.config.node import read_peer_secrets

    secrets = read_peer_secrets(arguments.peer_secret)
    producer_id, wanted = arguments.producer_id, arguments.producer_epoch
    found, unknown = await hanging(client, producer_id)
    found = [each for each in found if wanted in (None, each.producer_epoch)]
    if not found:
        epoch = "" if wanted is None else f" with epoch {wanted}"
        problem = f"producer {producer_id}{epoch} has no hanging transaction"
        if unknown:
            problem += f"; {len(unknown)} partitions could not be looked at"
        raise UsageError(problem, "look with `quorate transactions hanging`")
    return report_partitions(arguments, await abort_in_logs(client, found, secrets), "aborted in")
