"""The settings of a topic as rows of a response, each with where its value comes from.

Source: Kafka's DescribeConfigs and CreateTopics responses (KIP-226, KIP-525, KIP-569).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS, Kind, Setting, text_of
from quorum.metadata.topic_settings import TopicSettings, shown_value


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    #: /config/brokers/N
    DYNAMIC_BROKER = 2
    #: broker.toml
    STATIC_BROKER = 4
    DEFAULT = 5


def topic_config_rows(defaults: TopicSettings, overrides: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return every setting of a topic.

    Args:
        defaults: the broker's.
        overrides: {Kafka's name: text} of the topic.
    """
    return [
        _row(TOPIC_SETTINGS[name], defaults, overrides[name]) if name in overrides else row
        for name, row in _default_rows(defaults).items()
    ]


@lru_cache(maxsize=8)
def _default_rows(defaults: TopicSettings) -> Mapping[str, Mapping[str, Any]]:
    """Return the rows of a topic that sets nothing: most rows of most topics."""
    return {name: _row(setting, defaults, None) for name, setting in TOPIC_SETTINGS.items()}


def _row(setting: Setting, defaults: TopicSettings, override: str | None) -> Mapping[str, Any]:
    default, built_in = shown_value(setting, defaults, None), text_of(setting.default)
    values = [(built_in, ConfigSource.DEFAULT)]
    if default != built_in:
        values.insert(0, (default, ConfigSource.STATIC_BROKER))
    if override is not None:
        values.insert(0, (shown_value(setting, defaults, override), ConfigSource.TOPIC))
    no_effect = f" No effect: {setting.no_effect}." if setting.no_effect else ""
    return config_row(setting.name, setting.kind, values, f"{setting.documentation}{no_effect}")


def config_row(
    name: str,
    kind: Kind,
    values: Sequence[tuple[str | None, ConfigSource]],
    documentation: str | None,
    *,
    read_only: bool = False,
) -> dict[str, Any]:
    """Return one setting; values: each with its source, the one that holds first."""
    value, source = values[0]
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": each, "source": source} for each, source in values],
        "config_type": kind,
        "documentation": documentation,
    }
