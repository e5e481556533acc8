"""`quorate transactions`: lists, describes and aborts transactions, through any broker.

Decides how they look to a person and to a script; what may be aborted is the coordinator's affair.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from broker.commands.actions import Act, add_actions, print_rows, run_action
from quorum.errors import UsageError

if TYPE_CHECKING:
    from broker.client import BrokerClient

HELP = "list, describe and abort transactions"
DESCRIPTION = """\
Ask the coordinator of transactions, or abort one that is open: its producer is fenced."""
EXAMPLES = """\
examples:
  quorate transactions list
  quorate transactions describe payments
  quorate transactions abort payments
  quorate transactions abort --producer-id 1000 --producer-epoch 3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    rows: tuple[tuple[str, str, Act], ...] = (
        ("list", "list the transactional ids", _list),
        ("describe", "show the producer and the partitions of transactional ids", _describe),
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
        started = None
        if found.started_ms is not None:
            started = datetime.fromtimestamp(found.started_ms / 1000, UTC).isoformat(timespec="milliseconds")
        rows.append(
            {
                "transactional_id": found.transactional_id,
                "producer": found.producer_id,
                "epoch": found.producer_epoch,
                "state": found.state,
                "timeout_ms": found.timeout_ms,
                "started": started or "",
                "partitions": " ".join(f"{topic}-{index}" for topic, index in sorted(found.partitions)),
            }
        )
    columns = ("transactional_id", "producer", "epoch", "state", "timeout_ms", "started", "partitions")
    return print_rows(arguments, rows, columns)


async def _abort(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.transactions import abort_transaction, describe_transaction, list_transactions

    name, producer_id = arguments.id, arguments.producer_id
    if (name is None) == (producer_id is None):
        raise UsageError("which transaction is not clear", "give either ID or --producer-id")
    if name is None:
        listed = await list_transactions(client)
        name = next((each.transactional_id for each in listed if each.producer_id == producer_id), None)
        if name is None:
            raise UsageError(
                f"no transactional id has producer {producer_id}", "see `quorate transactions list`"
            )
    found = await describe_transaction(client, name)
    wanted = arguments.producer_epoch
    if wanted is not None and wanted != found.producer_epoch:
        problem = f"the producer of {name!r} has epoch {found.producer_epoch}, not {wanted}"
        raise UsageError(problem, "look again with `quorate transactions describe`")
    if found.state != "Ongoing":
        raise UsageError(
            f"{name!r} has no open transaction: its state is {found.state}", "nothing is to be done"
        )
    await abort_transaction(client, found)
    print(f"{name}: aborted")
    return 0
