"""The options of `format("quorate")` for reading, checked by name and value before anything runs.

Names and meanings are those of Spark's Kafka connector; maxBytesPerTrigger and commitGroup are our own.
Decides which options go together and what each value means; knows nothing of what a cluster holds. Spark
hands option names over in lower case.
Source: Structured Streaming + Kafka Integration Guide; KIP-32 for timestamps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException

from pipeline.dialling import (
    BROKER_OPTIONS,
    PASSWORD_FILE,
    PROTOCOL,
    broker_dialling,
    password_of,
    refuse_secrets,
)
from pipeline.errors import OptionError

#: Offsets that stand for a place in every log.
LATEST: Final = -1
EARLIEST: Final = -2
BOOTSTRAP: Final = "kafka.bootstrap.servers"
POLL_TIMEOUT_MS: Final = 120_000
_INT64_MAX: Final = 2**63 - 1

#: Every name but kafka.*, as people write it.
_SELECTIONS = ("subscribe", "assign", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "commitGroup")
_REST = (
    *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions", "includeHeaders"),
    *("kafkaConsumer.pollTimeoutMs", PASSWORD_FILE),
)
_NAMES = {name.lower(): name for name in (*_SELECTIONS, *_STARTS, *_ENDS, *_STREAM_ONLY, *_REST)}
#: Client settings about TLS and SASL begin so.
_PROOFS = ("security.", "sasl.", "ssl.")
#: What the reader decides itself, and what to use in place of it.
_OWN_CLIENT_SETTINGS = {
    "auto.offset.reset": "set startingOffsets",
    "enable.auto.commit": "set commitGroup for a group that shows the lag",
    "enable.auto.offset.store": "remove it",
    "enable.partition.eof": "remove it",
    "group.id": "set commitGroup for a group that shows the lag",
    "group.protocol": "remove it",
    "key.deserializer": "cast the column key",
    "value.deserializer": "cast the column value",
    "interceptor.classes": "remove it",
}


class Query(Enum):
    """What kind of query the options are for; Spark asks for the columns before it says."""

    UNKNOWN = "query"
    BATCH = "batch query"
    STREAM = "stream"


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True)
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Assigned:
    """These partitions."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Matching:
    """All partitions of the topics whose whole name matches, also those that appear later."""

    pattern: re.Pattern[str]


Selection = Subscribed | Assigned | Matching


@dataclass(frozen=True)
class Bound:
    """Where reading begins or ends: one value for every partition, or one for each.

    Attributes:
        option: the option that said so.
        text: its value, for errors.
        by_time: values are milliseconds since 1970; else offsets, or LATEST or EARLIEST.
        everywhere: the value of every partition; None: `each` has them.
        each: {partition: its value}
    """

    option: str
    text: str
    by_time: bool = False
    everywhere: int | None = None
    each: Mapping[Partition, int] = field(default_factory=dict)

    def of(self, partition: Partition) -> int:
        """Return the value of a partition."""
        return self.each[partition] if self.everywhere is None else self.everywhere

    def error(self, problem: str, remedy: str) -> OptionError:
        """Make the error that blames this option."""
        return OptionError(self.option, self.text, problem, remedy)


@dataclass(frozen=True)
class TopicOptions:
    """What a reader was asked for.

    Attributes:
        client: settings for librdkafka.
        selection: which partitions.
        start, end: where to begin and to end; a stream has no end.
        latest_if_no_match: a start by time after the last record is the end, and no error.
        fail_on_data_loss: records that are gone are an error; else a warning.
        offsets_per_trigger_max: of one micro-batch, over all partitions; None: no limit.
        bytes_per_trigger_max: the same in bytes, estimated.
        partitions_min: how many tasks Spark should have at least.
        include_headers: rows have the column headers.
        commit_group: the group that gets the stream's offsets.
        poll_timeout_ms: how long a task waits for the next record of a range.
    """

    client: Mapping[str, str] = field(repr=False)
    selection: Selection
    start: Bound
    end: Bound
    latest_if_no_match: bool
    fail_on_data_loss: bool
    offsets_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    partitions_min: int | None
    include_headers: bool
    commit_group: str | None
    poll_timeout_ms: int


def read_options(options: Mapping[str, str], query: Query) -> TopicOptions:
    """Check all options of a read.

    Args:
        options: {name in lower case: value}
        query: options of the other kind of query are refused.
    """
    _check_names(options, query)
    start_default = "latest" if query is Query.STREAM else "earliest"
    strategy = _choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    selection = _selection(options)
    start = _bound(options, _STARTS, start_default)
    end = _bound(options, _ENDS, "latest")
    if query is Query.BATCH:
        _check_batch_bounds(start, end)
    return TopicOptions(
        client=_client(options),
        selection=selection,
        start=start,
        end=end,
        latest_if_no_match=strategy == "latest",
        fail_on_data_loss=_choice(options, "failOnDataLoss", ("true", "false")) == "true",
        offsets_per_trigger_max=_number(options, "maxOffsetsPerTrigger"),
        bytes_per_trigger_max=_number(options, "maxBytesPerTrigger"),
        partitions_min=_number(options, "minPartitions"),
        include_headers=_choice(options, "includeHeaders", ("false", "true")) == "true",
        commit_group=options.get("commitgroup"),
        poll_timeout_ms=_number(options, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
    )


def _check_names(options: Mapping[str, str], query: Query) -> None:
    refuse_secrets(options)
    for name, value in options.items():
        if name.startswith("kafka."):
            if remedy := _OWN_CLIENT_SETTINGS.get(name.removeprefix("kafka.")):
                raise OptionError(name, value, "the reader decides this itself", remedy)
        elif name not in _NAMES:
            known = ", ".join(sorted(_NAMES.values()))
            raise OptionError(name, value, "there is no such option", f"use kafka.* or one of {known}")
    refused = {Query.BATCH: _STREAM_ONLY, Query.STREAM: _ENDS, Query.UNKNOWN: ()}[query]
    for name in refused:
        if name.lower() in options:
            raise OptionError(name, options[name.lower()], f"a {query.value} has no such option", "remove it")


def _client(options: Mapping[str, str]) -> dict[str, str]:
    """Take kafka.*, and have librdkafka judge names and values; it connects to nothing yet."""
    if not options.get(BOOTSTRAP):
        raise OptionError(BOOTSTRAP, options.get(BOOTSTRAP), "it is required", "name brokers as host:port,…")
    client = {
        name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")
    }
    if any(name.lower() in options for name in BROKER_OPTIONS):
        broker_dialling(options)
    if path := options.get(PASSWORD_FILE.lower()):
        client["sasl.password"] = password_of(path)
    secure = {name: value for name, value in client.items() if name.startswith(_PROOFS)}
    # One by one, since librdkafka does not always name the setting that it refuses; proofs need each other.
    each = [(f"kafka.{name}", {name: client[name]}) for name in client if name not in secure]
    for name, settings in (*each, *([(PROTOCOL, secure)] if secure else [])):
        try:
            Consumer({"group.id": "check", **settings}).close()
        except KafkaException as error:
            remedy = "use a setting of librdkafka for consumers; Java's own do not exist there"
            raise OptionError(name, options.get(name), error.args[0].str(), remedy) from None
    return client


def _selection(options: Mapping[str, str]) -> Selection:
    given = [name for name in _SELECTIONS if name.lower() in options]
    if len(given) != 1:
        remedy = "set exactly one of subscribe, assign and subscribePattern"
        raise OptionError("subscribe", " and ".join(given) or None, "it must be clear what to read", remedy)
    name = given[0]
    text = options[name.lower()]
    if name == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
        if not topics:
            raise OptionError(name, text, "names no topic", "name topics, separated by commas")
        return Subscribed(topics)
    if name == "subscribePattern":
        try:
            return Matching(re.compile(text))
        except re.error as error:
            raise OptionError(name, text, f"no regular expression: {error}", "correct it") from None
    remedy = 'write {"topic":[0,1]}'
    partitions = [
        Partition(topic, _count(name, number, remedy))
        for topic, numbers in _object(name, text, remedy).items()
        for number in (numbers if isinstance(numbers, list) else [None])
    ]
    if not partitions:
        raise OptionError(name, text, "names no partition", remedy)
    return Assigned(tuple(sorted(set(partitions))))


def _bound(options: Mapping[str, str], names: Iterable[str], default: str) -> Bound:
    """Read the first of the options that is there; the earlier ones take precedence."""
    name = next((name for name in names if name.lower() in options), "")
    if not name:
        return Bound(default, default, everywhere=EARLIEST if default == "earliest" else LATEST)
    text = options[name.lower()].strip()
    if name.endswith("Timestamp") and "Offsets" not in name:
        return Bound(name, text, by_time=True, everywhere=_number(options, name, least=0))
    by_time = name.endswith("ByTimestamp")
    if not by_time and text.lower() in ("earliest", "latest"):
        return Bound(name, text, everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    example = '{"topic":{"0":MILLISECONDS}}' if by_time else 'earliest, latest or {"topic":{"0":23}}'
    remedy = f"write {example}"
    each: dict[Partition, int] = {}
    for topic, values in _object(name, text, remedy).items():
        for number, value in (values if isinstance(values, dict) else {"": None}).items():
            if not (number.isascii() and number.isdigit()):
                raise OptionError(name, text, "cannot be read", remedy)
            least = 0 if by_time else EARLIEST
            each[Partition(topic, int(number))] = _count(name, value, remedy, least=least)
    return Bound(name, text, by_time=by_time, each=each)


def _check_batch_bounds(start: Bound, end: Bound) -> None:
    """A batch query reads a past that exists."""
    for bound, wrong, word in ((start, LATEST, "latest"), (end, EARLIEST, "earliest")):
        if not bound.by_time and wrong in (bound.everywhere, *bound.each.values()):
            problem = f"a batch query cannot {'begin' if bound is start else 'end'} at {word} ({wrong})"
            raise bound.error(problem, "name an offset, or read a stream")


def _object(name: str, text: str, remedy: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    raise OptionError(name, text, "cannot be read", remedy)


def _count(name: str, value: object, remedy: str, *, least: int = 0) -> int:
    """Check a number inside of JSON."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _INT64_MAX:
        return value
    raise OptionError(name, value, "is not a number that fits here", remedy)


def _number(options: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and least <= int(text) <= _INT64_MAX):
        raise OptionError(name, text, "no whole number in range", f"give a number, at least {least}")
    return int(text)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, str]) -> str:
    """Read one of two words; the first is the default."""
    text = options.get(name.lower(), choices[0])
    if text.lower() not in choices:
        raise OptionError(name, text, "is neither", f"use {choices[0]} or {choices[1]}")
    return text.lower()
