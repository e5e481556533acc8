"""`quorate reassign`: proposes, starts, watches and cancels reassignments of partitions, through any broker.

Decides how they look to a person and to a script. The proposal is controller.core.plan's; what a
reassignment does is the controller's affair. Files have the format of Kafka's own tool.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.commands.actions import Act, add_actions, report_partitions, run_action
from quorum.errors import UsageError, printable, shown

if TYPE_CHECKING:
    from broker.client.partition_admin import PartitionAdminClient
    from quorum.metadata.paths import PartitionKey

HELP = "move partitions to other brokers"
DESCRIPTION = """\
Move partitions to other brokers while clients write and read. `plan` proposes replicas that spread data,
leaders and racks evenly, and moves as little as that needs. `start` begins what a file says, `status` shows
what is under way, `cancel` brings the former replicas back. `throttle` slows down what is copied until
`throttle off`; replicas in the ISR are never throttled."""
EXAMPLES = """\
examples:
  quorate reassign plan --brokers 1,2,3,4 > moves.json
  quorate reassign plan --brokers 1,2 orders payments > moves.json
  quorate reassign start moves.json --throttle 50000000
  quorate reassign status
  quorate reassign throttle off
  quorate reassign cancel moves.json
  quorate reassign cancel --all
"""

#: Longest file that is read, in bytes.
FILE_BYTES_MAX: Final = 16 * 1024 * 1024

Targets = Mapping["PartitionKey", tuple[int, ...]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    rows: tuple[tuple[str, str, Act], ...] = (
        ("plan", "propose replicas, as the file that `start` reads", _plan),
        ("start", "begin the reassignments of a file", _start),
        ("status", "show the reassignments under way", _status),
        ("cancel", "cancel reassignments", _cancel),
        ("throttle", "throttle what reassignments copy, or end it", _throttle),
    )
    for name, action in add_actions(parser, rows):
        if name == "plan":
            action.add_argument("topics", metavar="TOPIC", nargs="*", help="default: every topic")
            action.add_argument(
                "--brokers", metavar="ID,…", help="brokers to place replicas on (default: all)"
            )
        if name == "start":
            action.add_argument("file", metavar="FILE", help="JSON as `plan` prints it; -: standard input")
            action.add_argument(
                "--throttle",
                metavar="BYTES",
                type=_rate,
                help="bytes a second per broker (default: no throttle)",
            )
        if name == "cancel":
            action.add_argument("file", metavar="FILE", nargs="?", help="the file that was started")
            action.add_argument("--all", action="store_true", help="all that are under way")
        if name == "throttle":
            action.add_argument(
                "rate",
                metavar="BYTES|off",
                type=_rate_or_off,
                help="bytes a second per broker; off: no throttle",
            )


run = run_action


async def _plan(client: PartitionAdminClient, arguments: argparse.Namespace) -> int:
    from controller.core.plan import plan_reassignment
    from quorum.metadata.admin_requests import ReassignmentRecord
    from quorum.metadata.paths import PartitionKey

    metadata = await client.metadata(arguments.topics or None)
    missing = [name for name in arguments.topics if not metadata.topics[name].partitions]
    if missing:
        raise UsageError(f"topic {shown(missing[0])} does not exist", "see `quorate topics list`")
    racks = {each: broker.rack for each, broker in metadata.brokers.items()}
    if arguments.brokers is not None:
        chosen = _broker_ids(arguments.brokers)
        unknown = [each for each in chosen if each not in racks]
        if unknown:
            known = ", ".join(map(str, sorted(racks)))
            raise UsageError(f"there is no live broker {unknown[0]}", f"name some of {known}")
        racks = {each: racks[each] for each in chosen}
    assignments = {
        PartitionKey(name, index): each.replicas
        for name, topic in metadata.topics.items()
        for index, each in topic.partitions.items()
    }
    try:
        moves = plan_reassignment(racks, assignments)
    except ValueError as error:
        raise UsageError(str(error), "name more brokers") from error
    # One format for people and scripts: it is the file that `start` reads.
    print(ReassignmentRecord(moves).encode().decode("ascii"))
    return 0


async def _start(client: PartitionAdminClient, arguments: argparse.Namespace) -> int:
    targets = _read_file(arguments.file)
    if arguments.throttle is not None:
        named = (await client.metadata({key.topic for key in targets})).topics
        # What does not exist is refused below, one by one.
        topics = [name for name, topic in named.items() if topic.partitions]
        if topics:
            broker_ids = await client.set_throttle(topics, arguments.throttle)
            if not arguments.json:
                print(_throttle_story(broker_ids, arguments.throttle))
    results = await client.alter_reassignments(targets)
    return report_partitions(arguments, results, "started")


async def _throttle(client: PartitionAdminClient, arguments: argparse.Namespace) -> int:
    rate: int | None = arguments.rate
    if rate is None:
        broker_ids = await client.remove_throttle()
    else:
        topics = {key.topic for key in await client.list_reassignments()}
        if not topics:
            remedy = "give --throttle to `quorate reassign start`"
            raise UsageError("no partition is being reassigned", remedy)
        broker_ids = await client.set_throttle(topics, rate)
    if arguments.json:
        print(json.dumps({"brokers": broker_ids, "bytes_per_second": rate}))
    else:
        print(_throttle_story(broker_ids, rate))
    return 0


def _throttle_story(broker_ids: Sequence[int], rate: int | None) -> str:
    ids = ", ".join(map(str, broker_ids))
    if rate is None:
        return f"brokers {ids} copy without a throttle"
    return (
        f"brokers {ids} copy at most {rate} bytes a second each, in each direction, "
        "until `quorate reassign throttle off`"
    )


async def _cancel(client: PartitionAdminClient, arguments: argparse.Namespace) -> int:
    if (arguments.file is None) != arguments.all:
        raise UsageError("it is not clear what to cancel", "give either a file or --all")
    keys = list(await client.list_reassignments()) if arguments.all else list(_read_file(arguments.file))
    results = await client.alter_reassignments(dict.fromkeys(keys)) if keys else {}
    return report_partitions(arguments, results, "cancelled")


async def _status(client: PartitionAdminClient, arguments: argparse.Namespace) -> int:
    from quorum.platform.terminal import table

    moves = await client.list_reassignments()
    topics = (await client.metadata({key.topic for key in moves})).topics if moves else {}
    rows = []
    for key, move in sorted(moves.items()):
        topic = topics.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        isr = () if partition is None else partition.isr
        waiting = [each for each in move.adding if each not in isr]
        rows.append((key.topic, key.partition, move.replicas, move.adding, move.removing, waiting))
    names = ("topic", "partition", "replicas", "adding", "removing", "not_in_sync")
    if arguments.json:
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
        return 0
    if not rows:
        print("no partition is being reassigned")
        if throttled := await client.throttled_brokers():
            ids = ", ".join(map(str, throttled))
            print(f"brokers {ids} are still throttled; end it with `quorate reassign throttle off`")
        return 0
    heads = [name.upper().replace("_", " ") for name in names]
    cells = [
        [printable(row[0]), row[1], *(",".join(map(str, ids)) or "-" for ids in row[2:])] for row in rows
    ]
    print("\n".join(table(heads, cells)))
    return 0


def _read_file(name: str) -> Targets:
    from quorum.metadata.admin_requests import ReassignmentRecord
    from quorum.metadata.errors import MetadataDecodeError

    try:
        if name == "-":
            content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(
            f"{shown(name)} cannot be read: {error.strerror}", "name a file of `plan`"
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise UsageError(f"{shown(name)} is longer than {FILE_BYTES_MAX} bytes", "start it in parts")
    try:
        targets = ReassignmentRecord.decode(content).targets
    except MetadataDecodeError as error:
        # The record is that of a znode, so its path and its remedy do not apply to a file.
        problem = printable(error.message.removeprefix(error.path).removeprefix(":").strip())
        raise UsageError(
            f"{shown(name)} is not a list of reassignments: {problem}",
            "correct the file, or write one with `quorate reassign plan`",
        ) from error
    if not targets:
        raise UsageError(f"{shown(name)} names no partition", "nothing has to move, or it is another file")
    return targets


def _rate(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of bytes a second, such as 50000000")
    return int(text)


def _rate_or_off(text: str) -> int | None:
    return None if text == "off" else _rate(text)


def _broker_ids(text: str) -> list[int]:
    ids = [int(each) for each in text.split(",") if each.isascii() and each.isdecimal() and len(each) < 11]
    if len(ids) != text.count(",") + 1 or len(dict.fromkeys(ids)) != len(ids):
        raise UsageError(f"--brokers {shown(text)} is not a list of different broker ids", "give 1,2,3")
    return ids
