"""`quorate topics`: creates, lists, describes, alters and deletes topics and elects leaders, through brokers.

Decides how topics look to a person and to a script; what a change means is the brokers' affair.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.commands.actions import Act, add_actions, report_partitions, run_action
from quorum.errors import QuorateError, UsageError, printable, shown

if TYPE_CHECKING:
    from broker.client import BrokerClient, TopicMetadata
    from broker.client.partition_admin import PartitionAdminClient
    from broker.client.topics import TopicResult

HELP = "create, list, describe, alter and delete topics, and elect leaders"
DESCRIPTION = """\
Ask a broker about topics, or change them. OSR are the replicas that are out of sync: those assigned that are
not in the ISR. The settings of a topic are Kafka's, as retention.ms, segment.bytes or min.insync.replicas;
one that has no effect here is stored, with a warning."""
EXAMPLES = """\
examples:
  quorate topics create orders --partitions 12 --replication-factor 3 --set min.insync.replicas=2
  quorate topics list
  quorate topics describe orders
  quorate topics alter orders --partitions 24 --set retention.ms=86400000 --unset segment.bytes
  quorate topics delete orders
  quorate topics elect
  quorate topics elect orders --unclean
"""

#: What a replication factor has room for in Kafka's protocol.
_COUNT_MAX: Final = 32_767
#: Where a setting comes from, by Kafka's number.
_SOURCES: Final = {1: "topic", 4: "broker.toml", 5: "default"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    rows: tuple[tuple[str, str, Act], ...] = (
        ("create", "create a topic", _create),
        ("list", "list the topics", _list),
        ("describe", "show partitions and settings of topics", _describe),
        ("alter", "change settings, or add partitions", _alter),
        ("delete", "delete a topic and its records", _delete),
        ("elect", "make the first replica of each partition the leader, where it is in sync", _elect),
    )
    for name, action in add_actions(parser, rows):
        if name in ("describe", "elect"):
            action.add_argument("topics", metavar="TOPIC", nargs="*", help="default: every topic")
        elif name != "list":
            action.add_argument("topic", metavar="TOPIC")
        if name in ("create", "alter"):
            action.add_argument("--partitions", type=_count, metavar="N", help="how many it shall have")
            action.add_argument(
                "--set", metavar="NAME=VALUE", dest="settings", action="append", default=[], help="a setting"
            )
        if name == "elect":
            action.add_argument(
                "--unclean",
                action="store_true",
                help="elect the best replica that lives where none in sync does: records are lost",
            )
        if name == "create":
            action.add_argument(
                "--replication-factor", type=_count, metavar="N", help="replicas of a partition"
            )
        if name == "alter":
            action.add_argument(
                "--unset", metavar="NAME", action="append", default=[], help="back to its default"
            )


run = run_action


async def _create(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from controller.core.requests import NewTopic

    topic = NewTopic(
        arguments.topic,
        num_partitions=-1 if arguments.partitions is None else arguments.partitions,
        replication_factor=-1 if arguments.replication_factor is None else arguments.replication_factor,
        settings=_settings(arguments.settings),
    )
    results = await client.create_topics([topic])
    done = _done(f"topic {arguments.topic} was not created", results[arguments.topic])
    _warn(topic.settings)
    fields = {
        "topic": arguments.topic,
        "topic_id": None if done.topic_id is None else str(done.topic_id),
        "partitions": done.num_partitions,
        "replication_factor": done.replication_factor,
    }
    text = f"created {arguments.topic}: partitions {done.num_partitions}, replication factor "
    return _say(arguments, f"{text}{done.replication_factor}", fields)


async def _delete(client: BrokerClient, arguments: argparse.Namespace) -> int:
    results = await client.delete_topics([arguments.topic])
    _done(f"topic {arguments.topic} was not deleted", results[arguments.topic])
    return _say(arguments, f"deleted {arguments.topic}", {"topic": arguments.topic})


async def _alter(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from controller.core.requests import NewPartitions
    from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS
    from quorum.metadata.topic_settings import near_miss

    settings = _settings(arguments.settings)
    for name in arguments.unset:
        if name not in TOPIC_SETTINGS:
            remedy = f"name one that `quorate topics describe --json` shows{near_miss(name)}"
            raise UsageError(f"--unset {shown(name)} is no known setting of a topic", remedy)
    if not settings and not arguments.unset and arguments.partitions is None:
        raise UsageError("nothing to change", "give --set NAME=VALUE, --unset NAME or --partitions N")
    if settings or arguments.unset:
        await client.alter_topic_configs(arguments.topic, settings, arguments.unset)
        _warn(settings)
    if arguments.partitions is not None:
        wanted = NewPartitions(arguments.topic, arguments.partitions)
        results = await client.create_partitions([wanted])
        so_far = ", though its settings were changed" if settings or arguments.unset else ""
        _done(f"topic {arguments.topic} got no partitions{so_far}", results[arguments.topic])
    return _say(arguments, f"altered {arguments.topic}", {"topic": arguments.topic})


async def _elect(client: PartitionAdminClient, arguments: argparse.Namespace) -> int:
    from quorum.metadata.paths import PartitionKey

    topics = (await client.metadata(arguments.topics or None)).topics
    _refuse_missing(arguments.topics, topics)
    keys = [PartitionKey(name, each) for name, topic in topics.items() for each in topic.partitions]
    results = await client.elect_leaders(keys, unclean=arguments.unclean) if keys else {}
    return report_partitions(arguments, results, "elected leaders of")


async def _list(client: BrokerClient, arguments: argparse.Namespace) -> int:
    from quorum.platform.terminal import table

    found = (await client.metadata()).topics
    rows = [
        (
            name,
            len(topic.partitions),
            max((len(each.replicas) for each in topic.partitions.values()), default=0),
        )
        for name, topic in sorted(found.items())
    ]
    if arguments.json:
        fields = [dict(zip(("topic", "partitions", "replication_factor"), row, strict=True)) for row in rows]
        print(json.dumps(fields))
        return 0
    cells = [[printable(name), partitions, factor] for name, partitions, factor in rows]
    print("\n".join(table(["TOPIC", "PARTITIONS", "REPLICAS"], cells)))
    return 0


async def _describe(client: BrokerClient, arguments: argparse.Namespace) -> int:
    metadata = await client.metadata(arguments.topics or None)
    _refuse_missing(arguments.topics, metadata.topics)
    names = sorted(metadata.topics)
    configs = await client.describe_topic_configs(names) if names else {}
    answers = [_topic_fields(name, metadata.topics[name], configs.get(name, [])) for name in names]
    if arguments.json:
        print(json.dumps(answers))
        return 0
    print("\n\n".join("\n".join(_lay_out(answer)) for answer in answers))
    return 0


def _refuse_missing(names: Sequence[str], found: Mapping[str, TopicMetadata]) -> None:
    """Refuse names of topics that brokers do not know."""
    from broker.client import BrokerRequestError
    from controller.wire.codes import ErrorCode

    for name in names:
        if name not in found or found[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            remedy = "see `quorate topics list`, or correct its name"
            raise QuorateError(f"topic {shown(name)} does not exist", remedy)
        if found[name].error_code:
            raise BrokerRequestError(f"topic {shown(name)}", found[name].error_code)


def _topic_fields(name: str, topic: TopicMetadata, configs: list[Any]) -> dict[str, Any]:
    partitions = [
        {
            "partition": index,
            "leader": None if each.leader < 0 else each.leader,
            "leader_epoch": each.leader_epoch,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
            "osr": [replica for replica in each.replicas if replica not in each.isr],
        }
        for index, each in sorted(topic.partitions.items())
    ]
    return {
        "topic": name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "partitions": partitions,
        "settings": {
            row.name: {"value": row.value, "source": _SOURCES.get(row.source, str(row.source))}
            | ({"no_effect": reason} if (reason := _no_effect(row.name)) else {})
            for row in configs
        },
    }


def _lay_out(answer: Mapping[str, Any]) -> list[str]:
    from quorum.platform.terminal import table

    def ids(values: list[int]) -> str:
        return ",".join(map(str, values)) or "-"

    own = [
        f"{name}={setting['value']}{' (no effect)' if 'no_effect' in setting else ''}"
        for name, setting in answer["settings"].items()
        if setting["source"] != "default"
    ]
    rows = [
        [
            each["partition"],
            "none (offline)" if each["leader"] is None else each["leader"],
            each["leader_epoch"],
            ids(each["replicas"]),
            ids(each["isr"]),
            ids(each["osr"]),
        ]
        for each in answer["partitions"]
    ]
    head = f"{printable(answer['topic'])}  id {answer['topic_id']}"
    settings = [f"settings: {printable(', '.join(own))}"] if own else []
    return [head, *settings, *table(["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OSR"], rows)]


def _done(what: str, result: TopicResult) -> TopicResult:
    """Return a result that is good."""
    from broker.client import BrokerRequestError

    if result.error_code:
        raise BrokerRequestError(what, result.error_code, result.message)
    return result


def _no_effect(name: str) -> str:
    """Return why a setting has no effect; empty if it has one."""
    from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS

    return TOPIC_SETTINGS[name].no_effect if name in TOPIC_SETTINGS else ""


def _warn(settings: Iterable[str]) -> None:
    """Say which of the settings that were stored have no effect."""
    for name in settings:
        reason = _no_effect(name)
        if reason:
            print(f"warning: {name} is stored and has no effect: {reason}", file=sys.stderr)


def _say(arguments: argparse.Namespace, text: str, fields: Mapping[str, object]) -> int:
    print(json.dumps(dict(fields)) if arguments.json else printable(text))
    return 0


def _count(text: str) -> int:
    """Read a number of partitions or replicas; how many there may be is the brokers' affair."""
    if not text.isdecimal() or not 1 <= int(text) <= _COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no whole number from 1 to {_COUNT_MAX}")
    return int(text)


def _settings(given: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {shown(each)} is not a setting", "give NAME=VALUE, as retention.ms=1000")
        settings[name] = value
    return settings
