"""The settings of a topic as rows of a response, each with where its value comes from.

Source: Kafka's DescribeConfigs and CreateTopics responses (KIP-226, KIP-525, KIP-569).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any

from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS, Setting, text_of
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
    default = shown_value(setting, defaults, None)
    built_in = text_of(setting.default)
    below = [{"name": setting.name, "value": built_in, "source": ConfigSource.DEFAULT}]
    if default != built_in:
        below.insert(0, {"name": setting.name, "value": default, "source": ConfigSource.STATIC_BROKER})
    value, source = default, below[0]["source"]
    if override is not None:
        value, source = shown_value(setting, defaults, override), ConfigSource.TOPIC
        below.insert(0, {"name": setting.name, "value": value, "source": source})
    return {
        "name": setting.name,
        "value": value,
        "read_only": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": below,
        "config_type": setting.kind,
        "documentation": _documentation(setting),
    }


def _documentation(setting: Setting) -> str:
    return (
        f"{setting.documentation} No effect: {setting.no_effect}."
        if setting.no_effect
        else setting.documentation
    )
