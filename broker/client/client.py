"""The client: finds the brokers, the controller and the leaders, and carries requests to them.

Decides where a request goes and when it is sent again: only after an answer, or a failure to connect, that
says it had no effect, and only until the deadline of the call. What may have had an effect is never repeated;
its outcome is NETWORK_EXCEPTION or the broker's own code, and is the caller's to look up.
Source: Kafka's protocol guide.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from broker.client import groups
from broker.client.errors import BrokerRequestError, NoBrokerAnswersError, UnsupportedByBrokerError
from broker.client.links import Address, Link, Links, parse_address
from broker.client.metadata import ClusterMetadata, read_metadata
from broker.client.partitions import (
    FetchedRecords,
    FoundOffset,
    FoundProducers,
    Isolation,
    Produced,
    fetch_values,
    list_offsets_values,
    read_fetch,
    read_list_offsets,
    read_produce,
)
from broker.client.proofs import BrokerProof
from broker.client.topics import (
    ConfigRow,
    TopicResult,
    alter_values,
    describe_values,
    read_configs,
    read_topic_results,
    topic_values,
)
from broker.wire.codec import Values
from broker.wire.packing import pack_produce_request
from controller.core.requests import NewPartitions, NewTopic
from controller.wire.apis import ApiKey
from controller.wire.codes import INDEFINITE, RETRIABLE, ErrorCode
from controller.wire.connection import BrokerConnectionLostError, BrokerUnreachableError
from quorum.metadata.paths import PartitionKey
from quorum.platform.tls import MakeContext

#: Pause between two attempts of one call, in seconds.
RETRY_PAUSE_S: Final = 0.1
#: How long an address is tried before the next one.
CONNECT_TIMEOUT_MS: Final = 3_000
#: The oldest Metadata with topic ids.
_METADATA_VERSION_MIN: Final = 10
#: The newest Fetch that names topics.
_FETCH_VERSION_MAX: Final = 12
#: The oldest OffsetFetch that names groups.
_FETCH_GROUPS_VERSION_MIN: Final = 8
#: What a broker gets beyond the time that the request itself gives it, to say that the time is over.
ANSWER_GRACE_MS: Final = 3_000
#: As a timestamp: the end of a log.
LATEST: Final = -1
_TOPIC, _BROKER = 2, 4

T = TypeVar("T")
Outcome = TypeVar("Outcome", Produced, FetchedRecords, FoundOffset, FoundProducers)


class BrokerClient:
    """A client of one cluster; use it as an async context manager, or call `close`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "quorate",
        timeout_ms: int = 10_000,
        tls: MakeContext | None = None,
        sasl: BrokerProof | None = None,
    ) -> None:
        """Connect to nobody yet.

        Args:
            bootstrap: "host:port,…" of client listeners; one that answers is enough.
            client_id: names this process to people. timeout_ms: of one call, attempts and pauses together.
            tls, sasl: makes the context of each connection, and is proved on it; None: plain, nothing.

        Raises:
            UsageError: an address is malformed.
        """
        self._bootstrap: list[Address] = [parse_address(each.strip()) for each in bootstrap.split(",")]
        self._timeout_ms = timeout_ms
        self._links = Links(client_id, tls, sasl)
        self._metadata = ClusterMetadata(None, -1, {}, {})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection."""
        self._links.close()

    # -- the cluster ------------------------------------------------------------------------------------

    async def metadata(self, topics: Collection[str] | None = None) -> ClusterMetadata:
        """Ask any broker for the cluster.

        Args:
            topics: names; None: all topics.

        Raises:
            NoBrokerAnswersError: no broker can be reached (definite).
            BrokerConnectionLostError: the broker went away before it answered.
        """
        values = {
            "topics": None if topics is None else [{"topic_id": None, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        }
        link = await self._any()
        response = await link.request(
            ApiKey.METADATA, values, timeout_ms=self._timeout_ms, at_least=_METADATA_VERSION_MIN
        )
        self._metadata = read_metadata(response)
        return self._metadata

    async def _any(self) -> Link:
        known = [(each.host, each.port) for each in self._metadata.brokers.values()]
        problems: list[str] = []
        remedy = "start a broker, or correct the addresses"
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._link(address)
            except (BrokerUnreachableError, BrokerConnectionLostError) as error:
                problems.append(error.message)
                remedy = error.remedy if isinstance(error.__cause__, ssl.SSLError) else remedy
        raise NoBrokerAnswersError("; ".join(problems), remedy)

    async def _broker(self, broker_id: int) -> Link:
        found = self._metadata.brokers[broker_id]
        return await self._link((found.host, found.port))

    async def _link(self, address: Address) -> Link:
        return await self._links.get(address, timeout_ms=min(CONNECT_TIMEOUT_MS, self._timeout_ms))

    # -- topics -----------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicResult]:
        """Create topics; returns what became of each."""
        rows = [topic_values(topic) for topic in topics]
        values = {"topics": rows, "validate_only": validate_only}
        return await self._administer(ApiKey.CREATE_TOPICS, values, "topics")

    async def delete_topics(self, names: Sequence[str]) -> dict[str, TopicResult]:
        """Delete topics; returns what became of each."""
        rows = [{"name": name, "topic_id": None} for name in names]
        values = {"topics": rows, "topic_names": names}
        return await self._administer(ApiKey.DELETE_TOPICS, values, "responses")

    async def create_partitions(
        self, counts: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, TopicResult]:
        """Add partitions to topics; returns what became of each topic."""
        rows = [
            {
                "name": each.name,
                "count": each.count,
                "assignments": None
                if each.assignments is None
                else [{"broker_ids": replicas} for replicas in each.assignments],
            }
            for each in counts
        ]
        values = {"topics": rows, "validate_only": validate_only}
        return await self._administer(ApiKey.CREATE_PARTITIONS, values, "results")

    async def _administer(self, api_key: ApiKey, values: Values, field: str) -> dict[str, TopicResult]:
        def read(response: Any) -> dict[str, TopicResult]:
            results = read_topic_results(getattr(response, field))
            if any(each.error_code == ErrorCode.NOT_CONTROLLER for each in results.values()):
                raise BrokerRequestError(api_key.name, ErrorCode.NOT_CONTROLLER)
            return results

        return await self._ask_controller(api_key, values, read)

    async def _ask_controller(
        self, api_key: ApiKey, values: Values, read: Callable[[Any], T], *, repeatable: bool = False
    ) -> T:
        """Send a request to the controller; again while the broker asked says that it is not.

        Args:
            api_key: which request.
            values: its body, but for the timeout.
            read: reads the response, or raises BrokerRequestError.
            repeatable: see _until_deadline.
        """

        async def attempt() -> T:
            await self.metadata(())
            if self._metadata.controller_id not in self._metadata.brokers:
                raise BrokerRequestError(api_key.name, ErrorCode.NOT_CONTROLLER, "no controller is known")
            link = await self._broker(self._metadata.controller_id)
            body = {**values, "timeout": self._timeout_ms}
            return read(await link.request(api_key, body, timeout_ms=self._timeout_ms + ANSWER_GRACE_MS))

        return await self._until_deadline(attempt, repeatable=repeatable)

    async def describe_topic_configs(self, topics: Sequence[str]) -> dict[str, list[ConfigRow]]:
        """Return the settings of topics.

        Raises:
            BrokerRequestError: of the first topic that has none.
        """
        values = describe_values(_TOPIC, topics)
        link = await self._any()
        response = await link.request(ApiKey.DESCRIBE_CONFIGS, values, timeout_ms=self._timeout_ms)
        return read_configs(response.results)

    async def describe_broker_configs(self, only: int | None = None) -> dict[str, str | None]:
        """Return the settings that a broker runs with: that of an id, or whichever can be reached.

        Raises:
            NoBrokerAnswersError: none can be reached.
        """
        await self.metadata(())
        problems: list[str] = []
        for broker_id in self._metadata.brokers if only is None else self._metadata.brokers.keys() & {only}:
            values = describe_values(_BROKER, [str(broker_id)])
            try:
                link = await self._broker(broker_id)
                response = await link.request(ApiKey.DESCRIBE_CONFIGS, values, timeout_ms=self._timeout_ms)
            except (BrokerUnreachableError, BrokerConnectionLostError) as error:
                problems.append(error.message)
                continue
            return {row.name: row.value for row in read_configs(response.results)[str(broker_id)]}
        raise NoBrokerAnswersError("; ".join(problems) or "no broker is alive", "start a broker")

    async def alter_topic_configs(
        self, topic: str, changed: Mapping[str, str], removed: Sequence[str] = (), validate_only: bool = False
    ) -> None:
        """Set some settings of a topic and put others back to their defaults; or only check them.

        Raises:
            BrokerRequestError: the broker refuses; nothing was changed if it is definite.
        """
        values = alter_values(_TOPIC, topic, changed, removed, validate_only)
        await self._alter_configs(await self._any(), values, f"settings of topic {topic}")

    async def _alter_configs(self, link: Link, values: Values, what: str) -> None:
        response = await link.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, values, timeout_ms=self._timeout_ms)
        for row in response.responses:
            if row.error_code:
                raise BrokerRequestError(what, row.error_code, row.error_message)

    # -- records ----------------------------------------------------------------------------------------

    async def produce(
        self, batches: Mapping[PartitionKey, bytes], *, acks: int = -1
    ) -> dict[PartitionKey, Produced]:
        """Append record batches; returns what became of each partition.

        Args:
            batches: {partition: one batch in format 2}.
            acks: -1 (all) or 1.
        """

        async def send(link: Link, part: Mapping[PartitionKey, bytes]) -> dict[PartitionKey, Produced]:
            version = link.version(ApiKey.PRODUCE)
            body = pack_produce_request(version, part, acks=acks, timeout_ms=self._timeout_ms)
            response = await link.request(ApiKey.PRODUCE, body, timeout_ms=self._timeout_ms + ANSWER_GRACE_MS)
            return read_produce(response)

        return await self.by_leader(batches, send, Produced)

    async def fetch(
        self,
        offsets: Mapping[PartitionKey, int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 8 * 1024 * 1024,
        isolation: Isolation = "read_uncommitted",
    ) -> dict[PartitionKey, FetchedRecords]:
        """Read record batches from the leaders, at least one batch where there is one.

        Args:
            offsets: {partition: offset to read from}; the first batch may begin before it.
            max_wait_ms: how long a leader may wait for records.
            max_bytes: of each partition and of each leader's answer.
            isolation: "read_committed" leaves out what is open or aborted.
        """

        async def send(link: Link, part: Mapping[PartitionKey, int]) -> dict[PartitionKey, FetchedRecords]:
            values = fetch_values(part, max_wait_ms=max_wait_ms, max_bytes=max_bytes, isolation=isolation)
            timeout_ms = max_wait_ms + self._timeout_ms
            response = await link.request(
                ApiKey.FETCH, values, timeout_ms=timeout_ms, at_most=_FETCH_VERSION_MAX
            )
            return read_fetch(response)

        return await self.by_leader(offsets, send, FetchedRecords, reads=True)

    async def list_offsets(self, timestamps: Mapping[PartitionKey, int]) -> dict[PartitionKey, FoundOffset]:
        """Return the offsets that belong to timestamps; -1: the end, -2: the start."""

        async def send(link: Link, part: Mapping[PartitionKey, int]) -> dict[PartitionKey, FoundOffset]:
            response = await link.request(
                ApiKey.LIST_OFFSETS, list_offsets_values(part), timeout_ms=self._timeout_ms
            )
            return read_list_offsets(response)

        return await self.by_leader(timestamps, send, FoundOffset, reads=True)

    async def offsets(self, keys: Iterable[PartitionKey], timestamp: int = LATEST) -> dict[PartitionKey, int]:
        """Return where partitions end, or the offsets that belong to a timestamp as in `list_offsets`.

        Raises:
            BrokerRequestError: of the first partition that cannot be asked.
        """
        found = await self.list_offsets(dict.fromkeys(keys, timestamp))
        for key, listed in found.items():
            if listed.error_code:
                raise BrokerRequestError(f"the offsets of {key.topic}-{key.partition}", listed.error_code)
        return {key: listed.offset for key, listed in found.items()}

    async def init_producer_id(self) -> int:
        """Return a producer id that nobody else has.

        Raises:
            BrokerRequestError: the broker cannot give one.
        """

        async def attempt() -> int:
            link = await self._any()
            values = {"transactional_id": None, "transaction_timeout": 0}
            response = await link.request(ApiKey.INIT_PRODUCER_ID, values, timeout_ms=self._timeout_ms)
            if response.error_code:
                raise BrokerRequestError("a producer id", response.error_code)
            return int(response.producer_id)

        return await self._until_deadline(attempt)

    # -- groups -----------------------------------------------------------------------------------------

    async def list_groups(self) -> list[groups.GroupListing]:
        """Return the consumer groups."""
        return await self.coordinate("", ApiKey.LIST_GROUPS, {}, groups.read_listings)

    async def describe_group(self, group_id: str) -> groups.GroupDescription:
        """Return a group and its members; a group that does not exist is "Dead"."""
        try:
            return await self.coordinate(
                group_id,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                {"group_ids": (group_id,), "include_authorized_operations": False},
                lambda response: groups.read_assigned_by_coordinator(response.groups[0]),
            )
        except BrokerRequestError as error:
            if error.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        except UnsupportedByBrokerError:
            pass
        values = {"groups": (group_id,), "include_authorized_operations": False}
        return await self.coordinate(
            group_id,
            ApiKey.DESCRIBE_GROUPS,
            values,
            lambda response: groups.read_description(response.groups[0]),
        )

    async def committed_offsets(self, group_id: str) -> dict[PartitionKey, groups.CommittedOffset]:
        """Return what a group has committed."""
        values = {"groups": [{"group_id": group_id, "topics": None}], "require_stable": False}
        return await self.coordinate(
            group_id, ApiKey.OFFSET_FETCH, values, groups.read_fetched, at_least=_FETCH_GROUPS_VERSION_MIN
        )

    async def commit_offsets(self, group_id: str, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit offsets in the name of a group without members."""
        await self.coordinate(
            group_id,
            ApiKey.OFFSET_COMMIT,
            groups.commit_values(group_id, offsets),
            lambda response: groups.check_committed(group_id, response),
        )

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""

        def read(response: Any) -> None:
            if code := response.results[0].error_code:
                raise BrokerRequestError(f"group {group_id} was not deleted", code)

        await self.coordinate(group_id, ApiKey.DELETE_GROUPS, {"groups_names": (group_id,)}, read)

    async def coordinate(
        self, group_id: str, api_key: ApiKey, values: Values, read: Callable[[Any], T], *, at_least: int = 0
    ) -> T:
        """Send a request to the coordinator of a group; again while no broker says that it is."""
        find = {"key": group_id, "key_type": 0, "coordinator_keys": (group_id,)}

        async def attempt() -> T:
            link = await self._any()
            response = await link.request(ApiKey.FIND_COORDINATOR, find, timeout_ms=self._timeout_ms)
            row = response.coordinators[0] if hasattr(response, "coordinators") else response
            if row.error_code:
                raise BrokerRequestError("the coordinator of groups", row.error_code, row.error_message)
            link = await self._link((row.host, row.port))
            return read(await link.request(api_key, values, timeout_ms=self._timeout_ms, at_least=at_least))

        return await self._until_deadline(attempt)

    # -- routing ----------------------------------------------------------------------------------------

    async def _until_deadline(self, attempt: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        """Try again what had no effect and may succeed later, until the time of the call is over.

        Args:
            attempt: asks once.
            repeatable: whether to ask again, too, where the outcome is unknown: twice has the effect of once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1000
        while True:
            try:
                return await attempt()
            except (BrokerRequestError, BrokerUnreachableError, NoBrokerAnswersError) as error:
                may_repeat = error.retriable and (error.definite or repeatable)
                if not may_repeat or loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def by_leader(
        self,
        items: Mapping[PartitionKey, T],
        send: Callable[[Link, Mapping[PartitionKey, T]], Awaitable[Mapping[PartitionKey, Outcome]]],
        failed: Callable[[ErrorCode], Outcome],
        *,
        reads: bool = False,
    ) -> dict[PartitionKey, Outcome]:
        """Send each partition's part to its leader, and again what another leader may take.

        Args:
            items: what is sent.
            send: sends one leader's part.
            failed: makes the outcome of a partition that could not be sent.
            reads: whether the request may be repeated also if its outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1000
        outcomes: dict[PartitionKey, Outcome] = {}
        pending = dict(items)
        while True:
            groups: dict[int, dict[PartitionKey, T]] = {}
            if any(self._metadata.leader_of(key) is None for key in pending):
                await self.metadata({key.topic for key in pending})
            for key, item in pending.items():
                leader = self._metadata.leader_of(key)
                if leader is None:
                    outcomes[key] = failed(self._metadata.error_of(key))
                else:
                    groups.setdefault(leader, {})[key] = item
            sent = await asyncio.gather(
                *(self._send_group(leader, part, send, failed) for leader, part in groups.items())
            )
            for each in sent:
                outcomes.update(each)
            pending = {key: pending[key] for key in pending if _again(outcomes[key].error_code, reads)}
            if not pending or loop.time() >= deadline:
                return outcomes
            await asyncio.sleep(RETRY_PAUSE_S)
            await self.metadata({key.topic for key in pending})

    async def _send_group(
        self,
        leader: int,
        part: Mapping[PartitionKey, T],
        send: Callable[[Link, Mapping[PartitionKey, T]], Awaitable[Mapping[PartitionKey, Outcome]]],
        failed: Callable[[ErrorCode], Outcome],
    ) -> Mapping[PartitionKey, Outcome]:
        try:
            return await send(await self._broker(leader), part)
        except BrokerUnreachableError:
            return dict.fromkeys(part, failed(ErrorCode.LEADER_NOT_AVAILABLE))
        except BrokerConnectionLostError:
            return dict.fromkeys(part, failed(ErrorCode.NETWORK_EXCEPTION))


def _again(error_code: int, reads: bool) -> bool:
    return error_code in RETRIABLE and (reads or error_code not in INDEFINITE)
