"""The settings of topics, or of one broker, as the quorum holds them, kept current by a watch.

Decides nothing about a value (quorum.metadata does), nor what a setting does. Soft state: {topic or broker:
overrides}, read as a whole after every connection and one by one after an event. A change goes through the
znode's version, so two that change different settings at once both take effect.
Source: Kafka's dynamic broker configuration, KIP-226.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from broker.stores.following import FollowedNodes
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.broker_settings import (
    BROKER_LISTS,
    BrokerSettings,
    check_broker_changes,
    effective_broker_settings,
)
from quorum.metadata.errors import MetadataDecodeError, NoSuchTopicError
from quorum.metadata.reading import read_node
from quorum.metadata.records import BrokerConfigRecord, TopicConfigRecord
from quorum.metadata.rewriting import rewrite
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_setting_rows import TOPIC_LISTS
from quorum.metadata.topic_settings import SEGMENT_BYTES_MIN, TopicSettings, check_topic_settings, effective

log = logging.getLogger("quorate.broker.settings")

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class SettingsKind(Generic[S]):
    """What the settings below one folder are."""

    #: "topic" or "broker"
    owner: str
    folder: str
    #: {every known setting: its default if it is a list, else None}
    lists: Mapping[str, str | None]
    #: (name of a topic or broker, value of its node) → {Kafka's name: text}
    decode: Callable[[str, bytes | None], Mapping[str, str]]
    encode: Callable[[Mapping[str, str]], bytes]
    #: refuses changes by InvalidSettingError, by what is set afterwards
    check: Callable[[SettingChanges, Mapping[str, str]], None]
    #: overrides → the effective settings
    effective: Callable[[Mapping[str, str]], S]


class SettingsStore(Generic[S]):
    """What is set for each topic or for one broker, and the effective settings."""

    def __init__(
        self, kind: SettingsKind[S], on_change: Callable[[str], None], only: str | None = None
    ) -> None:
        """Hold nothing yet; `attach` reads.

        Args:
            kind: what the settings are.
            on_change: called with a topic or broker whose settings have changed, or are known for the first
                time.
            only: the one name to follow; None: all.
        """
        self._kind = kind
        self._on_change = on_change
        self._only = only
        #: What holds where nothing is set.
        self.defaults = kind.effective({})
        #: {name: {Kafka's name: text}}; a name without overrides has no entry
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._effective: dict[str, S] = {}
        self._nodes = FollowedNodes(
            f"settings of a {kind.owner}", listed=self._listed, follows=self._follows, take=self._take
        )

    async def attach(self, client: Client) -> None:
        """Follow the settings through a new session: watch, then read everything."""
        path = self._kind.folder if self._only is None else self._path(self._only)
        await self._nodes.attach(client, path, recursive=self._only is None)

    async def reload(self) -> None:
        """Read all settings, as after a connection that may have missed events."""
        await self._nodes.reload()

    def settings_of(self, name: str) -> S:
        """Return the effective settings; the defaults for a name without overrides."""
        return self._effective.get(name, self.defaults)

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return what is set for a topic or broker itself: {Kafka's name: text}."""
        return self._overrides.get(name, {})

    async def alter(self, name: str, changes: SettingChanges, validate_only: bool = False) -> None:
        """Change settings, or only check that."""
        client, kind, path = self._nodes.client, self._kind, self._path(name)
        if self._only is None and await client.exists(paths.topic_path(name)) is None:
            raise NoSuchTopicError(name)

        def change(data: bytes | None) -> bytes:
            after = changes.applied({} if data is None else kind.decode(name, data), kind.lists)
            kind.check(changes, after)
            return kind.encode(after)

        if validate_only:
            node = await read_node(client, path)
            change(None if node is None else node.data)
        else:
            self._nodes.note(
                path, await rewrite(client, path, change, f"the settings of {kind.owner} {name}")
            )

    def _path(self, name: str) -> str:
        return f"{self._kind.folder}/{name}"

    def _follows(self, path: str) -> bool:
        name = path.removeprefix(f"{self._kind.folder}/")
        return name != path and "/" not in name

    async def _listed(self, client: Client) -> list[str]:
        names = [self._only] if self._only else await client.get_children(self._kind.folder)
        return [self._path(name) for name in names]

    def _take(self, path: str, data: bytes | None) -> None:
        owner, name = self._kind.owner, path.removeprefix(f"{self._kind.folder}/")
        try:
            overrides = {} if data is None else self._kind.decode(name, data)
        except MetadataDecodeError as error:
            log.warning("the settings of %s %s are left as they were: %s", owner, name, error.message)
            return
        if overrides == self.overrides(name):
            return
        if overrides:
            self._overrides[name] = overrides
            self._effective[name] = self._kind.effective(overrides)
        else:
            del self._overrides[name], self._effective[name]
        self._on_change(name)


def topic_configs(
    defaults: TopicSettings, on_change: Callable[[str], None], segment_bytes_min: int = SEGMENT_BYTES_MIN
) -> SettingsStore[TopicSettings]:
    """Return the settings of all topics.

    Args:
        defaults: the broker's default of every setting.
        on_change: called with a topic.
        segment_bytes_min: the smallest segment.bytes that may be set.
    """
    kind = SettingsKind(
        "topic",
        paths.CONFIG_TOPICS,
        TOPIC_LISTS,
        decode=lambda topic, data: TopicConfigRecord.decode(topic, data).settings,
        encode=lambda settings: TopicConfigRecord(settings).encode(),
        check=lambda changes, after: check_topic_settings(
            changes.named(after), segment_bytes_min=segment_bytes_min, after=after
        ),
        effective=partial(effective, defaults),
    )
    return SettingsStore(kind, on_change)


def broker_configs(
    broker_id: int, defaults: BrokerSettings, on_change: Callable[[str], None]
) -> SettingsStore[BrokerSettings]:
    """Return the settings of this broker that change while it runs."""
    kind = SettingsKind(
        "broker",
        paths.CONFIG_BROKERS,
        BROKER_LISTS,
        decode=lambda _, data: BrokerConfigRecord.decode(broker_id, data).settings,
        encode=lambda settings: BrokerConfigRecord(settings).encode(),
        check=lambda changes, _: check_broker_changes(changes),
        effective=partial(effective_broker_settings, defaults),
    )
    return SettingsStore(kind, on_change, only=str(broker_id))
