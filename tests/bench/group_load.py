"""A cheap client that is thousands of members of consumer groups, each with a connection of its own.

Members join as Kafka's clients do, then send heartbeats and commits that were encoded beforehand, at fixed
times and whatever the answers take. When their coordinator goes they look for another with the pauses of
Kafka's clients. Every error code of an answer is counted. Knows nothing of who serves it.
Source: Kafka protocol guide; KIP-394 (member ids), KIP-580 (pauses between attempts).
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from broker.wire.codec import decode_response, encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.frames import response_body_offset
from tests.support.frames import pack_request

TOPIC: Final = "bench"
PARTITIONS: Final = 4
SESSION_MS: Final = 45_000
HEARTBEAT_S: Final = 3.0
COMMIT_S: Final = 5.0
RETRY_MIN_S: Final = 0.1
RETRY_MAX_S: Final = 1.0
ANSWER_DEADLINE_S: Final = 120.0
#: How often a member tries to get through one rebalance.
JOINS_MAX: Final = 100
#: Groups that join at once.
JOINING_MAX: Final = 100
#: Versions, all with tagged fields, as today's clients send them.
VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 7,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.OFFSET_COMMIT: 8,
}
#: Where the error code of an answer stands, counted from its end.
_HEARTBEAT_ERROR: Final = 3
_COMMIT_ERROR: Final = 5
_LENGTH: Final = struct.Struct(">i")
_CODE: Final = struct.Struct(">h")

REJOIN: Final = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION))
RETRIED: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


def subscription(user_data: bytes = b"") -> bytes:
    """Return what a member says of itself: ConsumerProtocolSubscription 0."""
    topics = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode()
    return topics + _LENGTH.pack(len(user_data)) + user_data


class GroupLoadError(RuntimeError):
    """A member was answered what the benchmark does not expect."""


class Link(asyncio.Protocol):
    """A connection on which one request at a time is answered."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None
        self.closed = False

    @classmethod
    async def open(cls, address: str) -> Link:
        """Connect to "host:port"."""
        host, _, port = address.rpartition(":")
        _, link = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Put a frame together."""
        self._received += data
        size = len(self._received)
        if size >= 4 and size >= 4 + _LENGTH.unpack_from(self._received)[0]:
            frame, self._received = self._received[4:], b""
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(frame)

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail what waits."""
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the broker has gone"))

    async def exchange(self, frame: bytes) -> bytes:
        """Send a frame; return the answer's."""
        if self.closed or self._transport is None:
            raise ConnectionResetError("the broker has gone")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._answer

    async def ask(self, api_key: ApiKey, values: Mapping[str, Any]) -> Any:
        """Send a request; return its answer as an entity of kio."""
        frame = await self.exchange(request_frame(api_key, values))
        return decode_response(
            api_key, VERSIONS[api_key], frame[response_body_offset(frame, flexible=True) :]
        )

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()


def request_frame(api_key: ApiKey, values: Mapping[str, Any]) -> bytes:
    """Encode a request."""
    body = encode_request(api_key, VERSIONS[api_key], values)
    return pack_request(api_key, VERSIONS[api_key], 1, "bench", body, flexible=True)


@dataclass
class Tally:
    """What the members of a fleet have done and were answered."""

    heartbeats: int = 0
    commits: int = 0
    commit_ms: list[float] = field(default_factory=list)
    joins: int = 0
    #: {error code: answers}
    errors: Counter[ErrorCode] = field(default_factory=Counter)


@dataclass
class Group:
    """A group: where its coordinator is, and its members."""

    group_id: str
    members: list[Member] = field(default_factory=list)
    address: str = ""
    #: monotonic seconds of the first commit that succeeded since this was None
    first_commit_s: float | None = None
    _search: asyncio.Task[str] | None = None

    async def find(self, fleet: Fleet, not_at: str) -> str:
        """Return where the coordinator is; members that ask at once share the answer."""
        if self.address and self.address != not_at:
            return self.address
        if self._search is None or self._search.done():
            self._search = asyncio.ensure_future(fleet.search(self.group_id))
        self.address = await asyncio.shield(self._search)
        return self.address


class Member:
    """A member of a group."""

    def __init__(self, fleet: Fleet, group: Group, number: int) -> None:
        self._fleet = fleet
        self._group = group
        self._number = number
        self._link: Link | None = None
        self.member_id = ""
        self.metadata = subscription()
        self._heartbeat = b""
        self._commit = b""

    async def join(self) -> None:
        """Take part in a rebalance until the assignment is there."""
        for _ in range(JOINS_MAX):
            try:
                if await self._join_once():
                    return
            except ConnectionError:
                await self._look_elsewhere()
        raise GroupLoadError(f"{self._group.group_id}: no assignment after {JOINS_MAX} attempts")

    async def _join_once(self) -> bool:
        link = await self._connected()
        self._fleet.tally.joins += 1
        joined = await link.ask(
            ApiKey.JOIN_GROUP,
            {
                "group_id": self._group.group_id,
                "session_timeout": SESSION_MS,
                "rebalance_timeout": 300_000,
                "member_id": self.member_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": self.metadata}],
            },
        )
        if joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID):
            self.member_id = joined.member_id if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
            return False
        if not self._may_go_on(joined.error_code):
            await self._look_elsewhere()
            return False
        leads = joined.leader == joined.member_id
        assignments = [
            {"member_id": each.member_id, "assignment": b"\0" * 40} for each in joined.members if leads
        ]
        synced = await link.ask(
            ApiKey.SYNC_GROUP,
            {
                "group_id": self._group.group_id,
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
            },
        )
        if synced.error_code in REJOIN:
            return False
        if not self._may_go_on(synced.error_code):
            await self._look_elsewhere()
            return False
        self._encode(joined.generation_id)
        return True

    def _may_go_on(self, error_code: int) -> bool:
        if error_code == 0:
            return True
        code = ErrorCode(error_code)
        self._fleet.tally.errors[code] += 1
        if code not in RETRIED:
            raise GroupLoadError(f"{self._group.group_id}: answered {code.name}")
        return False

    def _encode(self, generation_id: int) -> None:
        who = {
            "group_id": self._group.group_id,
            "generation_id": generation_id,
            "generation_id_or_member_epoch": generation_id,
            "member_id": self.member_id,
        }
        self._heartbeat = request_frame(ApiKey.HEARTBEAT, who)
        offset = {
            "partition_index": self._number % PARTITIONS,
            "committed_offset": 1,
            "committed_metadata": "",
        }
        topics = [{"name": TOPIC, "partitions": [offset]}]
        self._commit = request_frame(ApiKey.OFFSET_COMMIT, {**who, "topics": topics})

    async def beat(self, commit_s: float | None) -> None:
        """Send heartbeats, and commits if wanted, until the fleet stops."""
        random_s = self._fleet.random.random()
        heartbeat_at = time.monotonic() + random_s * HEARTBEAT_S
        commit_at = float("inf") if commit_s is None else time.monotonic() + random_s * commit_s
        while await self._fleet.pause_until(min(heartbeat_at, commit_at)):
            if heartbeat_at <= commit_at:
                heartbeat_at += HEARTBEAT_S
                await self._send(self._heartbeat, _HEARTBEAT_ERROR)
                self._fleet.tally.heartbeats += 1
            else:
                commit_at += commit_s or 0.0
                sent = time.monotonic()
                if await self._send(self._commit, _COMMIT_ERROR):
                    now = time.monotonic()
                    self._fleet.tally.commits += 1
                    self._fleet.tally.commit_ms.append((now - sent) * 1000)
                    if self._group.first_commit_s is None:
                        self._group.first_commit_s = now

    async def _send(self, frame: bytes, error_at: int) -> bool:
        """Send until it is answered without an error, or the fleet stops; rejoin where that is asked."""
        pause_s = RETRY_MIN_S
        while not self._fleet.over.is_set():
            try:
                answer = await (await self._connected()).exchange(frame)
            except ConnectionError:
                code = ErrorCode.NOT_COORDINATOR
            else:
                code = ErrorCode(_CODE.unpack_from(answer, len(answer) - error_at)[0])
            if code is ErrorCode.NONE:
                return True
            self._fleet.tally.errors[code] += 1
            if code in REJOIN or code is ErrorCode.UNKNOWN_MEMBER_ID:
                await self.join()
                return False
            if code not in RETRIED:
                raise GroupLoadError(f"{self._group.group_id}: answered {code.name}")
            await self._fleet.pause_until(
                time.monotonic() + pause_s * (0.8 + 0.4 * self._fleet.random.random())
            )
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            await self._look_elsewhere()
        return False

    async def _connected(self) -> Link:
        if self._link is None or self._link.closed:
            self._link = await Link.open(await self._group.find(self._fleet, ""))
        return self._link

    async def _look_elsewhere(self) -> None:
        """Ask for the coordinator again, once for all members of the group."""
        before = self._group.address
        self.close()
        self._group.address = ""
        await self._group.find(self._fleet, before if self._group.address == before else "")

    def close(self) -> None:
        """End the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None


class Fleet:
    """Many groups of members."""

    def __init__(self, addresses: Sequence[str], seed: int = 1) -> None:
        """Know the brokers; members come with `join`."""
        self._addresses = list(addresses)
        self._finders: dict[str, Link] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self.random = random.Random(seed)
        self.groups: list[Group] = []
        self.tally = Tally()
        self.over = asyncio.Event()
        self._beating: list[asyncio.Task[None]] = []

    @property
    def members(self) -> list[Member]:
        """Members of all groups."""
        return [member for group in self.groups for member in group.members]

    async def join(self, groups: int, members_each: int, name: str = "bench") -> None:
        """Add groups, and wait until every member has its assignment."""
        limit = asyncio.Semaphore(JOINING_MAX)

        async def joined(group: Group) -> None:
            async with limit:
                await asyncio.gather(*(member.join() for member in group.members))

        added = [Group(f"{name}-{number:05d}") for number in range(groups)]
        for group in added:
            group.members = [Member(self, group, number) for number in range(members_each)]
        self.groups += added
        await asyncio.gather(*map(joined, added))

    def start_beating(self, commit_s: float | None = None, *, committers: int = 0) -> None:
        """Let every member send heartbeats, and commits: all of them, or the first few of each group."""
        for group in self.groups:
            for number, member in enumerate(group.members):
                commits = commit_s if not committers or number < committers else None
                self._beating.append(asyncio.ensure_future(member.beat(commits)))

    async def settle(self, seconds: float) -> Tally:
        """Let the members work for a while; returns what they did in it."""
        self.tally = Tally()
        await self.pause_until(time.monotonic() + seconds)
        failed = [task for task in self._beating if task.done()]
        if failed:
            await asyncio.gather(*failed)
        done, self.tally = self.tally, Tally()
        return done

    async def pause_until(self, at_s: float) -> bool:
        """Wait until a time of the monotonic clock; says whether the fleet still works."""
        try:
            async with asyncio.timeout(max(0.0, at_s - time.monotonic())):
                await self.over.wait()
        except TimeoutError:
            return True
        return False

    async def search(self, group_id: str) -> str:
        """Ask brokers for a group's coordinator until one names it."""
        pause_s = RETRY_MIN_S
        deadline = time.monotonic() + ANSWER_DEADLINE_S
        while time.monotonic() < deadline:
            address = self.random.choice(self._addresses)
            try:
                found = await self._ask_for_coordinator(address, group_id)
            except ConnectionError:
                found = ""
            if found:
                return found
            if not await self.pause_until(time.monotonic() + pause_s):
                raise asyncio.CancelledError
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        raise GroupLoadError(f"{group_id}: no broker names a coordinator")

    async def _ask_for_coordinator(self, address: str, group_id: str) -> str:
        async with self._asking.setdefault(address, asyncio.Lock()):
            link = self._finders.get(address)
            if link is None or link.closed:
                link = self._finders[address] = await Link.open(address)
            answer = await link.ask(ApiKey.FIND_COORDINATOR, {"key": group_id, "key_type": 0})
        return "" if answer.error_code else f"{answer.host}:{answer.port}"

    async def close(self) -> None:
        """End all members' connections, so that the groups are left to their sessions."""
        self.over.set()
        for task in self._beating:
            task.cancel()
        await asyncio.gather(*self._beating, return_exceptions=True)
        for member in self.members:
            member.close()
        for link in self._finders.values():
            link.close()
