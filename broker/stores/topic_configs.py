"""The settings of topics as the quorum holds them, kept current by a watch.

Decides nothing about a value (quorum.metadata.topic_settings does). Soft state: {topic: overrides}, read as
a whole after every connection and by the topic after an event. A change goes through the znode's version,
so two that change different settings at once both take effect.
Source: control-plane design, "Paths and values" (/config/topics/T).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from quorum.client import (
    BadVersionError,
    Client,
    ClientError,
    NodeExistsError,
    NoNodeError,
    ServerError,
    WatchEvent,
)
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, MetadataDecodeError, NoSuchTopicError
from quorum.metadata.reading import read_node
from quorum.metadata.records import TopicConfigRecord
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_setting_rows import TOPIC_LISTS
from quorum.metadata.topic_settings import (
    SEGMENT_BYTES_MIN,
    TopicSettings,
    check_topic_settings,
    effective,
)

log = logging.getLogger("quorate.broker.topics")

ROUNDS_MAX: Final = 8


async def rewrite(client: Client, path: str, change: Callable[[bytes | None], bytes], what: str) -> bytes:
    """Replace the value of a node by what becomes of the present one; a missing node is created.

    Args:
        client: of the quorum.
        path: the node.
        change: present value, None without a node → new value.
        what: it is, for an error.

    Returns:
        The new value.

    Raises:
        ContendedError: others changed it in each of ROUNDS_MAX rounds; nothing was changed.
        ClientError: with an unknown outcome if it is a lost connection.
    """
    for _ in range(ROUNDS_MAX):
        node = await read_node(client, path)
        value = change(None if node is None else node.data)
        try:
            if node is None:
                await client.create(path, value)
            else:
                await client.set(path, value, node.stat.version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue
        return value
    raise ContendedError(what, ROUNDS_MAX)


class TopicConfigs:
    """What is set for each topic, and the effective settings."""

    def __init__(
        self,
        defaults: TopicSettings,
        on_change: Callable[[str], None],
        segment_bytes_min: int = SEGMENT_BYTES_MIN,
    ) -> None:
        """Hold nothing yet; `attach` reads.

        Args:
            defaults: the broker's default of every setting.
            on_change: called with a topic whose settings have changed, or are known for the first time.
            segment_bytes_min: the smallest segment.bytes that may be set.
        """
        self.defaults = defaults
        self._segment_bytes_min = segment_bytes_min
        self._on_change = on_change
        self._client: Client | None = None
        #: {topic: {Kafka's name: text}}; a topic without overrides has no entry
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._effective: dict[str, TopicSettings] = {}
        #: Topics to read (again), in the order in which they changed.
        self._dirty: dict[str, None] = {}
        self._reader: asyncio.Task[None] | None = None
        #: Held while settings are read: what is read first is taken first.
        self._reading = asyncio.Lock()

    async def attach(self, client: Client) -> None:
        """Follow the settings through a new session: watch, then read everything.

        Raises:
            ClientError: the session ended, or the quorum refused.
        """
        self._client = client
        await client.add_watch(paths.CONFIG_TOPICS, self._changed, recursive=True)
        await self.reload()

    async def reload(self) -> None:
        """Read the settings of every topic, as after a connection that may have missed events.

        Raises:
            ClientError: the session ended, or the quorum refused.
        """
        assert self._client is not None
        topics = await self._client.get_children(paths.CONFIG_TOPICS)
        self._dirty.update(dict.fromkeys((*topics, *self._overrides)))
        await self._read_dirty()

    def settings_of(self, topic: str) -> TopicSettings:
        """Return the effective settings of a topic; the defaults for one without overrides."""
        return self._effective.get(topic, self.defaults)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """Return what is set for a topic itself: {Kafka's name: text}."""
        return self._overrides.get(topic, {})

    async def alter(self, topic: str, changes: SettingChanges, validate_only: bool = False) -> None:
        """Change the settings of a topic, or only check that.

        Raises:
            InvalidSettingError: a name or value is refused; nothing was changed.
            NoSuchTopicError: there is no such topic.
            ContendedError: others changed the settings in each of ROUNDS_MAX rounds; nothing was changed.
            ClientError: with an unknown outcome if it is a lost connection.
        """
        client = self._client
        assert client is not None
        if await client.exists(paths.topic_path(topic)) is None:
            raise NoSuchTopicError(topic)

        def change(data: bytes | None) -> bytes:
            before = {} if data is None else TopicConfigRecord.decode(topic, data).settings
            after = changes.applied(before, TOPIC_LISTS)
            check_topic_settings(changes.named(after), segment_bytes_min=self._segment_bytes_min)
            return TopicConfigRecord(after).encode()

        path = paths.config_topic_path(topic)
        if validate_only:
            node = await read_node(client, path)
            change(None if node is None else node.data)
            return
        self._take(topic, await rewrite(client, path, change, f"the settings of topic {topic}"))

    def _changed(self, event: WatchEvent) -> None:
        topic = event.path.removeprefix(f"{paths.CONFIG_TOPICS}/")
        if topic == event.path or "/" in topic:
            return
        self._dirty[topic] = None
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        try:
            await self._read_dirty()
        except ClientError as error:
            # The next connection, or the next session, reads everything.
            log.info("settings were not read: %s", error.message)

    async def _read_dirty(self) -> None:
        async with self._reading:
            client = self._client
            while self._dirty and client is not None and client is self._client:
                topics, self._dirty = self._dirty, {}
                found = await client.read_all([paths.config_topic_path(topic) for topic in topics])
                for topic, outcome in zip(topics, found, strict=True):
                    self._take(topic, None if isinstance(outcome, ServerError) else outcome[0])

    def _take(self, topic: str, data: bytes | None) -> None:
        try:
            overrides = {} if data is None else TopicConfigRecord.decode(topic, data).settings
        except MetadataDecodeError as error:
            log.warning("the settings of topic %s are left as they were: %s", topic, error.message)
            return
        if overrides == self._overrides.get(topic, {}):
            return
        if overrides:
            self._overrides[topic] = overrides
            self._effective[topic] = effective(self.defaults, overrides)
        else:
            self._overrides.pop(topic, None)
            self._effective.pop(topic, None)
        self._on_change(topic)
