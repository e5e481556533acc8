"""`quorate groups`: lists, describes, resets and deletes consumer groups, through any broker.

Decides how groups look to a person and to a script, in the columns that users of kafka-consumer-groups know.
What may be reset is the coordinator's affair.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from broker.commands.actions import Act, add_actions, lay_out, print_rows, run_action
from quorum.errors import QuorateError, UsageError, printable, shown

if TYPE_CHECKING:
    from broker.client import BrokerClient
    from broker.client.goals import ResetGoal
    from quorum.metadata.paths import PartitionKey

HELP = "list, describe, reset and delete consumer groups"
DESCRIPTION = """\
Ask the coordinator of groups, or change what a group has committed. LAG is how far the committed offset is
behind the end of the log. A reset needs a group without members; without --execute it only shows what it
would do."""
EXAMPLES = """\
examples:
  quorate groups list
  quorate groups describe billing
  quorate groups describe billing --members
  quorate groups reset-offsets billing --topic orders --to-earliest --execute
  quorate groups reset-offsets billing --topic orders:0,1 --shift-by -100
  quorate groups delete billing
"""

_LATEST: Final = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    rows: tuple[tuple[str, str, Act], ...] = (
        ("list", "list the groups", _list),
        ("describe", "show offsets, lag and members of groups", _describe),
        ("reset-offsets", "move the committed offsets of a group", _reset),
        ("delete", "delete groups and their offsets", _delete),
    )
    for name, action in add_actions(parser, rows):
        if name in ("describe", "delete"):
            action.add_argument("groups", metavar="GROUP", nargs="+")
        if name == "describe":
            action.add_argument("--members", action="store_true", help="show the members, not the offsets")
        if name == "reset-offsets":
            _add_reset_arguments(action)


def _add_reset_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument("group", metavar="GROUP")
    action.add_argument(
        "--topic",
        metavar="TOPIC[:P,…]",
        dest="topics",
        action="append",
        default=[],
        help="a topic, or partitions of it; may be repeated (default: all that the group has committed)",
    )
    goal = action.add_mutually_exclusive_group(required=True)
    goal.add_argument("--to-earliest", action="store_true", help="to the first record")
    goal.add_argument("--to-latest", action="store_true", help="behind the last record")
    goal.add_argument("--to-offset", type=int, metavar="N", help="to an offset, within the log")
    goal.add_argument("--shift-by", type=int, metavar="N", help="by so many records, back if negative")
    goal.add_argument(
        "--to-datetime", metavar="TIME", help="to the first record at or after 2026-01-31T12:00"
    )
    action.add_argument("--execute", action="store_true", help="do it")


run = run_action


async def _list(client: BrokerClient, arguments: argparse.Namespace) -> int:
    groups = sorted(await client.list_groups())
    fields = [
        {"group": each.group_id, "type": each.group_type, "protocol": each.protocol_type, "state": each.state}
        for each in groups
    ]
    return print_rows(arguments, fields, ("group", "type", "protocol", "state"))


async def _describe(client: BrokerClient, arguments: argparse.Namespace) -> int:
    answers = [await _group_fields(client, group_id) for group_id in arguments.groups]
    if arguments.json:
        print(json.dumps(answers))
        return 0
    texts: list[str] = []
    for answer in answers:
        head = f"{printable(answer['group'])}  {answer['state']}"
        if answer["protocol"]:
            head += f"  assignor {printable(answer['protocol'])}"
        if answer["problem"]:
            head += f"\nnot written: {printable(answer['problem'])}"
        rows = answer["members" if arguments.members else "offsets"]
        columns = _MEMBER_COLUMNS if arguments.members else _OFFSET_COLUMNS
        texts.append("\n".join([head, *lay_out(rows, columns)]))
    print("\n\n".join(texts))
    return 0


_OFFSET_COLUMNS: Final = (
    *("topic", "partition", "current_offset", "log_end_offset", "lag"),
    *("consumer_id", "host", "client_id"),
)
_MEMBER_COLUMNS: Final = ("consumer_id", "instance_id", "host", "client_id", "partitions")


async def _group_fields(client: BrokerClient, group_id: str) -> dict[str, Any]:
    found = await client.describe_group(group_id)
    if found.state == "Dead":
        raise QuorateError(f"group {shown(group_id)} does not exist", "see `quorate groups list`")
    committed = await client.committed_offsets(group_id)
    owners = {key: member for member in found.members for key in member.partitions or ()}
    keys = sorted({*committed, *owners})
    ends = await client.list_offsets(dict.fromkeys(keys, _LATEST)) if keys else {}
    offsets = []
    for key in keys:
        offset = committed[key].offset if key in committed else None
        end = ends[key].offset if ends[key].error_code == 0 else None
        owner = owners.get(key)
        offsets.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "current_offset": offset,
                "log_end_offset": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "consumer_id": owner and owner.member_id,
                "host": owner and owner.host,
                "client_id": owner and owner.client_id,
            }
        )
    members = [
        {
            "consumer_id": each.member_id,
            "instance_id": each.instance_id,
            "host": each.host,
            "client_id": each.client_id,
            "partitions": None if each.partitions is None else len(each.partitions),
        }
        for each in found.members
    ]
    return {
        "group": group_id,
        "state": found.state,
        "protocol": found.protocol,
        "problem": found.problem,
        "offsets": offsets,
        "members": members,
    }


async def _delete(client: BrokerClient, arguments: argparse.Namespace) -> int:
    for group_id in arguments.groups:
        await client.delete_group(group_id)
        print(json.dumps({"group": group_id}) if arguments.json else printable(f"deleted {group_id}"))
    return 0


# -- resets --------------------------------------------------------------------------------------------------


async def _reset(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from broker.client.goals import reset_goals

    group_id, goal = arguments.group, _goal(arguments)
    found = await client.describe_group(group_id)
    if found.members:
        raise QuorateError(
            f"group {shown(group_id)} has {len(found.members)} members",
            "stop its consumers, or wait until their sessions end",
        )
    committed = await client.committed_offsets(group_id)
    keys = await _keys(client, arguments.topics) if arguments.topics else sorted(committed)
    if not keys:
        raise QuorateError(f"group {shown(group_id)} has committed nothing", "name the topics: --topic TOPIC")
    before = {key: committed[key].offset for key in keys if key in committed}
    offsets = await reset_goals(client, goal, keys, before)
    if arguments.execute:
        await client.commit_offsets(group_id, offsets)
    fields = [
        {
            "group": group_id,
            "topic": key.topic,
            "partition": key.partition,
            "old_offset": before.get(key),
            "new_offset": offsets[key],
        }
        for key in keys
    ]
    columns = ("group", "topic", "partition", "old_offset", "new_offset")
    code = print_rows(arguments, fields, columns)
    if not arguments.execute and not arguments.json:
        print("nothing was changed; add --execute")
    return code


async def _keys(client: BrokerClient, given: Iterable[str]) -> list[PartitionKey]:
    """Return the partitions that TOPIC or TOPIC:P,… name."""
    from quorum.metadata.paths import PartitionKey

    wanted: dict[PartitionKey, None] = {}
    for each in given:
        topic, colon, numbers = each.partition(":")
        known = (await client.metadata([topic])).topics.get(topic)
        if known is None or known.error_code:
            raise QuorateError(f"topic {shown(topic)} does not exist", "see `quorate topics list`")
        partitions = numbers.split(",") if colon else [str(index) for index in sorted(known.partitions)]
        for number in partitions:
            if not number.isdecimal() or int(number) not in known.partitions:
                remedy = f"name some of 0 to {max(known.partitions)}"
                raise QuorateError(f"--topic {shown(each)}: {shown(number)} is no partition", remedy)
            wanted[PartitionKey(topic, int(number))] = None
    return list(wanted)


def _goal(arguments: argparse.Namespace) -> ResetGoal:
    from broker.client.goals import ResetGoal

    if arguments.to_earliest:
        return ResetGoal("earliest")
    if arguments.to_latest:
        return ResetGoal("latest")
    if arguments.to_datetime is not None:
        return ResetGoal("time", _timestamp_ms(arguments.to_datetime))
    if arguments.to_offset is not None:
        return ResetGoal("offset", arguments.to_offset)
    return ResetGoal("shift", arguments.shift_by)


def _timestamp_ms(text: str) -> int:
    from broker.client.goals import moment_ms

    try:
        return moment_ms(text)
    except ValueError as error:
        problem = f"--to-datetime {shown(text)} is no time"
        raise UsageError(problem, "write 2026-01-31T12:00, or 2026-01-31T12:00+01:00") from error
