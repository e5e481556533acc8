"""Our settings of topics and brokers are those of Kafka 3.9.1: names, types, defaults, and values."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from broker.server.api.broker_config_rows import broker_config_rows
from quorum.metadata.broker_settings import THROTTLED_RATES
from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS, text_of
from tests.support.kafka_jars import kafka_java_command
from tests.support.memory_broker import config

PROGRAM = Path(__file__).parent / "java" / "KafkaSettings.java"
DEADLINE_S = 60.0
#: Values of every kind that each setting is asked about.
VALUES: Final = (
    *("-3", "-2", "-1", "0", "1", "4", "10", "17", "18", "4096", "2147483647", "2147483648"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "+7",
        "007",
        "1.5",
        "0.5",
        "5e-1",
    ),
    *(
        "true",
        "FALSE",
        "yes",
        "",
        "delete",
        "compact",
        "delete,compact",
        "gone",
        "*",
        "0:1, 2:3",
        "0:1,2",
        "0-1",
    ),
    *(
        "producer",
        "zstd",
        "none",
        "CreateTime",
        "LogAppendTime",
        "2.8",
        "2.8.1",
        "0.10.2-IV0",
        "3.9-IV0",
        "9.9",
    ),
)
#: What Kafka takes and we do not, by setting: DIVERGENCES.md says why.
REFUSED: Final = {
    "segment.bytes": {"17", "18"},
    "remote.storage.enable": {"true"},
    "remote.log.copy.disable": {"true"},
    "remote.log.delete.on.disable": {"true"},
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What Kafka says."""
    asked = "".join(f"{name}\t{value}\n" for name in TOPIC_SETTINGS for value in VALUES)
    done = subprocess.run(
        kafka_java_command(PROGRAM, tmp_path_factory.mktemp("kafka")),
        input=asked,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def rows(said: list[str], kind: str) -> dict[str, tuple[str, str]]:
    """Return Kafka's settings of one kind: {name: (type, default)}."""
    found = [line.split("\t") for line in said if line.startswith(f"{kind}\t")]
    return {name: (type_name, default) for _, name, type_name, default in found}


def test_the_settings_of_topics_are_kafkas_with_its_types_and_defaults(said: list[str]) -> None:
    ours = {row.name: (row.kind.name, text_of(row.default)) for row in TOPIC_SETTINGS.values()}
    assert ours == rows(said, "topic")


def test_a_setting_of_a_topic_takes_what_kafka_takes(said: list[str]) -> None:
    answers = iter([line == "= true" for line in said if line.startswith("= ")])
    differing: dict[str, set[str]] = {}
    for name, setting in TOPIC_SETTINGS.items():
        for value in VALUES:
            try:
                setting.read(value)
                taken = True
            except ValueError:
                taken = False
            if taken is not next(answers):
                differing.setdefault(name, set()).add(value)
    assert differing == REFUSED
    assert next(answers, None) is None


def test_the_settings_of_brokers_have_kafkas_names_and_types(said: list[str], tmp_path: Path) -> None:
    known = rows(said, "broker")
    ours = {row.name: row.config_type.name for row in broker_config_rows(config(tmp_path), {})}
    # Rates of replication are known to Kafka as dynamic settings alone.
    assert {name: known[name][0] for name in ours if name not in THROTTLED_RATES} == {
        name: kind for name, kind in ours.items() if name not in THROTTLED_RATES
    }
