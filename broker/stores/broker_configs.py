"""The settings of this broker that change while it runs, read from the quorum and kept current by a watch.

Decides nothing about a value (quorum.metadata.broker_settings does), nor what a setting does. Soft state,
read again after every connection and every event.
Source: Kafka's dynamic broker configuration, /config/brokers/N; KIP-226.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from broker.stores.topic_configs import rewrite
from quorum.client import Client, ClientError, WatchEvent
from quorum.metadata import paths
from quorum.metadata.broker_settings import (
    BROKER_LISTS,
    BrokerSettings,
    check_broker_changes,
    effective_broker_settings,
)
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.reading import read_node
from quorum.metadata.records import BrokerConfigRecord
from quorum.metadata.setting_changes import SettingChanges

log = logging.getLogger("quorate.broker")


class BrokerConfigs:
    """What is set for one broker."""

    def __init__(self, broker_id: int, on_change: Callable[[BrokerSettings], None]) -> None:
        """Hold nothing yet; `attach` reads.

        Args:
            broker_id: this broker.
            on_change: called with the effective settings when they have changed.
        """
        self._broker_id = broker_id
        self._path = paths.config_broker_path(broker_id)
        self._on_change = on_change
        self._client: Client | None = None
        #: {Kafka's name: text}
        self.overrides: Mapping[str, str] = {}
        self._is_dirty = False
        self._reader: asyncio.Task[None] | None = None

    async def attach(self, client: Client) -> None:
        """Follow the settings through a new session: watch, then read.

        Raises:
            ClientError: the session ended, or the quorum refused.
        """
        self._client = client
        await client.add_watch(self._path, self._changed)
        await self.reload()

    async def reload(self) -> None:
        """Read the settings, as after a connection that may have missed events.

        Raises:
            ClientError: the session ended, or the quorum refused.
        """
        assert self._client is not None
        node = await read_node(self._client, self._path)
        self._take(None if node is None else node.data)

    async def alter(self, changes: SettingChanges, validate_only: bool = False) -> None:
        """Change settings, or only check that.

        Raises:
            InvalidSettingError: a name or value is refused; nothing was changed.
            ContendedError: others changed the settings again and again; nothing was changed.
            ClientError: with an unknown outcome if it is a lost connection.
        """
        check_broker_changes(changes)
        if validate_only:
            return
        assert self._client is not None

        def change(data: bytes | None) -> bytes:
            before = {} if data is None else BrokerConfigRecord.decode(self._broker_id, data).settings
            return BrokerConfigRecord(changes.applied(before, BROKER_LISTS)).encode()

        what = f"the settings of broker {self._broker_id}"
        self._take(await rewrite(self._client, self._path, change, what))

    def _changed(self, _event: WatchEvent) -> None:
        self._is_dirty = True
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        client = self._client
        try:
            while self._is_dirty and client is self._client:
                self._is_dirty = False
                await self.reload()
        except ClientError as error:
            # The next connection, or the next session, reads again.
            log.info("the settings of broker %d were not read: %s", self._broker_id, error.message)

    def _take(self, data: bytes | None) -> None:
        try:
            overrides = {} if data is None else BrokerConfigRecord.decode(self._broker_id, data).settings
        except MetadataDecodeError as error:
            log.warning("the settings of broker %d are left as they were: %s", self._broker_id, error.message)
            return
        if overrides != self.overrides:
            self.overrides = overrides
            settings = effective_broker_settings(overrides)
            log.info("broker %d runs with %s", self._broker_id, settings)
            self._on_change(settings)
