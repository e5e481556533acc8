"""`quorate transactions`: lists, describes and aborts transactions, through any broker.

An open one is named by its ID; a hanging one, which only logs know, by its producer's id and epoch. Its abort
takes the brokers' secret.

Decides how they look to a person and to a script; what may be aborted is the coordinator's affair.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.commands.actions import Act, add_actions, print_rows, report_partitions, run_action
from quorum.errors import QuorateError, UsageError, printable, shown
from quorum.metadata.transaction_records import TransactionState

if TYPE_CHECKING:
    from broker.client import BrokerClient

HELP = "list, describe and abort transactions"
DESCRIPTION = """\
Ask the coordinator of transactions, or abort one that is open: its producer is fenced. A hanging transaction
is open in the logs of partitions, but not at the coordinator; its abort takes the brokers' peer secret."""
EXAMPLES = """\
examples:
  quorate transactions list --longer-than 900
  quorate transactions describe payments
  quorate transactions abort payments
  quorate transactions hanging
  quorate transactions abort --producer-id 1000 --producer-epoch 3 --peer-secret data/peer.secret
"""

_PRODUCER_ID_MAX: Final = 2**63 - 1
_PRODUCER_EPOCH_MAX: Final = 2**15 - 1
_SECONDS_MAX: Final = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    rows: tuple[tuple[str, str, Act], ...] = (
        ("list", "list the transactional ids", _list),
        ("describe", "show the producer and the partitions of transactional ids", _describe),
        ("hanging", "show what logs have open and the coordinator does not know", _hanging),
        ("abort", "abort an open transaction", _abort),
    )
    for name, action in add_actions(parser, rows):
        if name == "list":
            _add_list_arguments(action)
        if name == "describe":
            action.add_argument("ids", metavar="ID", type=_id, nargs="+")
        if name == "abort":
            _add_abort_arguments(action)


def _add_list_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--state",
        metavar="NAME",
        dest="states",
        type=_state,
        action="append",
        help="only those in this state, as Ongoing; may be repeated",
    )
    action.add_argument(
        "--longer-than",
        metavar="SECONDS",
        type=_number_to(_SECONDS_MAX),
        help="only those that are open for longer",
    )


def _add_abort_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument("id", metavar="ID", type=_id, nargs="?", help="of an open one, as `list` names it")
    action.add_argument(
        "--producer-id",
        type=_number_to(_PRODUCER_ID_MAX),
        metavar="N",
        help="of a hanging one, as `hanging` names it, in place of ID",
    )
    action.add_argument(
        "--producer-epoch", type=_number_to(_PRODUCER_EPOCH_MAX), metavar="N", help="of a hanging one"
    )
    action.add_argument(
        "--peer-secret", type=Path, metavar="FILE", help="the brokers' peer secret, for a hanging one"
    )


def _id(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is no transactional id; `quorate transactions list` names them")
    return text


def _state(text: str) -> str:
    # Nobody sees one that is removed.
    states = [each.value for each in TransactionState if each is not TransactionState.DEAD]
    if text not in states:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no state; give one of {', '.join(states)}")
    return text


def _number_to(last: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > len(str(last)) or int(text) > last:
            raise argparse.ArgumentTypeError(f"{shown(text)} is no whole number from 0 to {last}")
        return int(text)

    return read


run = run_action


async def _list(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.transactions import (
        OPEN_STATES,
        TransactionDescription,
        describe_transactions,
        list_transactions,
    )

    states, longer_ms = arguments.states or (), -1
    if arguments.longer_than is not None:
        # What is over keeps its begin, and is open no longer.
        states, longer_ms = states or OPEN_STATES, arguments.longer_than * 1000
    listed = sorted(await list_transactions(client, states, longer_ms))
    opened = [each.transactional_id for each in listed if each.state in OPEN_STATES]
    described = await describe_transactions(client, opened)
    now_ms, rows = time.time_ns() // 1_000_000, []
    for each in listed:
        found = described.get(each.transactional_id)
        started_ms = found.started_ms if isinstance(found, TransactionDescription) else None
        rows.append(
            {
                "transactional_id": each.transactional_id,
                "producer": each.producer_id,
                "state": each.state,
                "started": _when(started_ms),
                "open_s": None if started_ms is None else max(0, now_ms - started_ms) // 1000,
            }
        )
    return print_rows(arguments, rows, ("transactional_id", "producer", "state", "started", "open_s"))


async def _describe(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client import BrokerRequestError
    from broker.client.transactions import describe_transactions

    rows, errors = [], []
    for found in (await describe_transactions(client, arguments.ids)).values():
        if isinstance(found, BrokerRequestError):
            errors.append(found)
            continue
        keys = [f"{topic}-{index}" for topic, index in sorted(found.partitions)]
        rows.append(
            {
                "transactional_id": found.transactional_id,
                "producer": found.producer_id,
                "epoch": found.producer_epoch,
                "state": found.state,
                "timeout_ms": found.timeout_ms,
                "started": _when(found.started_ms),
                "partitions": keys if arguments.json else " ".join(keys),
            }
        )
    columns = ("transactional_id", "producer", "epoch", "state", "timeout_ms", "started", "partitions")
    print_rows(arguments, rows, columns)
    if errors:
        raise QuorateError("; ".join(each.message for each in errors), errors[0].remedy)
    return 0


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
    producer = arguments.producer_id, arguments.producer_epoch, arguments.peer_secret
    if arguments.id is not None and producer == (None, None, None):
        return await _abort_open(client, arguments)
    if arguments.id is None and None not in producer:
        return await _abort_hanging(client, arguments)
    raise UsageError(
        "which transaction is not clear",
        "give only ID for one that `quorate transactions list` names, or --producer-id, --producer-epoch "
        "and --peer-secret for one that `quorate transactions hanging` names",
    )


async def _abort_open(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client import BrokerRequestError
    from broker.client.transactions import abort_transaction, describe_transactions

    name = arguments.id
    found = (await describe_transactions(client, (name,)))[name]
    if isinstance(found, BrokerRequestError):
        raise found
    if found.state != TransactionState.ONGOING:
        remedy = "look at `quorate transactions list`, and at `hanging` for what only logs know"
        raise UsageError(f"{shown(name)} has no open transaction: its state is {found.state}", remedy)
    await abort_transaction(client, found)
    fields = {"transactional_id": name, "aborted": True}
    print(json.dumps(fields) if arguments.json else f"{printable(name)}: aborted")
    return 0


async def _abort_hanging(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.hanging import abort_in_logs, hanging
    from quorum.config.node import read_peer_secrets
    from quorum.platform.tls import DIALLING

    secrets = read_peer_secrets(arguments.peer_secret)
    producer_id, epoch = arguments.producer_id, arguments.producer_epoch
    found, unknown = await hanging(client, producer_id)
    found = [each for each in found if each.producer_epoch == epoch]
    if not found:
        problem = f"producer {producer_id} with epoch {epoch} has no hanging transaction"
        if unknown:
            problem += f"; {len(unknown)} partitions could not be looked at"
        raise UsageError(
            problem, "look at `quorate transactions hanging`; `abort ID` aborts what `list` names"
        )
    return report_partitions(
        arguments, await abort_in_logs(client, found, secrets, DIALLING.get()), "aborted in"
    )
