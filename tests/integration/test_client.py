"""The asyncio client against real servers: operations, watches, pipelining, sessions through failures."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from quorum.client import (
    BadVersionError,
    Client,
    ClientClosedError,
    ClientError,
    ClientState,
    ConnectionLossError,
    CreateMode,
    EventType,
    MultiFailedError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NoParentError,
    NotEmptyError,
    RequestTooLargeError,
    SessionExpiredError,
    Transaction,
    WatchEvent,
    WatchStream,
)
from quorum.client.errors import BadArgumentsError
from tests.support.clients import (
    DEADLINE_S,
    SESSION_TIMEOUT_MS,
    CuttingProxy,
    States,
    first_of,
    hosts,
    outlive_session,
    root,
    starting_at,
    system,
)
from tests.support.nodes import System

__all__ = ["hosts", "root", "system"]


#: A server leaves a client before its session may end elsewhere, so a disk that hangs for two seconds costs a
#: short session its connection. Tests in which no request may be lost have long ones.
PATIENT_MS = 20_000


def connect(hosts: str, **options: object) -> Client:
    return Client(hosts, session_timeout_ms=SESSION_TIMEOUT_MS, **options)  # type: ignore[arg-type]


async def next_event(stream: WatchStream) -> WatchEvent:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(stream)


async def test_a_node_is_created_read_changed_and_deleted(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        assert await client.create(root, b"one") == root
        data, stat = await client.get(root)
        assert (data, stat.version, stat.data_length, stat.children_count) == (b"one", 0, 3, 0)
        assert stat.czxid == stat.mzxid == stat.pzxid > 0
        written = await client.set(root, b"", 0)
        assert (written.version, written.czxid, written.mzxid) == (1, stat.czxid, stat.mzxid + 1)
        assert await client.get(root) == (b"", written)
        assert await client.exists(root) == written
        path, child = await client.create2(f"{root}/child", None)
        assert path == f"{root}/child"
        assert child.czxid == written.mzxid + 1
        assert await client.get(path) == (None, child)
        names, parent = await client.get_children2(root)
        assert (names, parent.children_count, parent.cversion, parent.pzxid) == (["child"], 1, 1, child.czxid)
        assert await client.get_children(root) == ["child"]
        assert await client.sync(root) == root
        await client.delete(path, 0)
        await client.delete(root)
        assert await client.exists(root) is None


async def test_sequential_and_ephemeral_nodes(hosts: str, root: str) -> None:
    async with connect(hosts) as client, connect(hosts) as other:
        await client.create(root)
        first = await client.create(f"{root}/s-", b"", CreateMode.PERSISTENT_SEQUENTIAL)
        second = await client.create(f"{root}/s-", b"", CreateMode.EPHEMERAL_SEQUENTIAL)
        assert (first, second) == (f"{root}/s-0000000000", f"{root}/s-0000000001")
        stat = await client.exists(second)
        assert stat is not None
        assert stat.ephemeral_owner == client.session_id
        with pytest.raises(NoChildrenForEphemeralsError):
            await client.create(f"{second}/x")
        await client.close()
        await other.sync()
        assert await other.exists(second) is None
        assert await other.exists(first) is not None


async def test_every_refusal_has_its_type_and_is_definite(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root)
        await client.create(f"{root}/child")
        refusals = [
            (client.create(root), NodeExistsError),
            (client.create(f"{root}/a/b"), NoParentError),
            (client.get(f"{root}/none"), NoNodeError),
            (client.set(f"{root}/none", b""), NoNodeError),
            (client.get_children(f"{root}/none"), NoNodeError),
            (client.delete(f"{root}/none"), NoNodeError),
            (client.set(root, b"", 7), BadVersionError),
            (client.delete(f"{root}/child", 7), BadVersionError),
            (client.delete(root), NotEmptyError),
            (client.create("no-slash"), BadArgumentsError),
        ]
        for operation, expected in refusals:
            with pytest.raises(expected) as caught:
                await operation
            assert caught.value.definite
        assert (await client.get(root))[1].version == 0


async def test_a_multi_is_all_or_nothing(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root, b"v0")
        good = Transaction().check(root, 0).create2(f"{root}/a", b"1").set(root, b"v1", 0).create(f"{root}/b")
        results = await client.multi(good)
        zxid = results[1].written_stat.czxid
        assert [result.path for result in results] == [None, f"{root}/a", None, f"{root}/b"]
        assert results[2].written_stat.mzxid == zxid
        assert (await client.get(f"{root}/b"))[1].czxid == zxid
        bad = Transaction().delete(f"{root}/a").set(root, b"v2", 0).create(f"{root}/c")
        with pytest.raises(MultiFailedError) as caught:
            await client.multi(bad)
        assert caught.value.index == 1
        assert isinstance(caught.value.cause, BadVersionError)
        assert (await client.get(root))[0] == b"v1"
        assert sorted(await client.get_children(root)) == ["a", "b"]
        assert await client.multi(Transaction()) == []


async def test_watches_fire_once_for_what_they_wait_for(hosts: str, root: str) -> None:
    async with connect(hosts) as client, connect(hosts) as writer:
        stream = WatchStream()
        assert await client.exists(root, watch=stream) is None
        await writer.create(root)
        created = await next_event(stream)
        assert (created.event_type, created.path) == (EventType.NODE_CREATED, root)
        await client.sync()
        await client.get(root, watch=stream)
        await client.get_children(root, watch=stream)
        stat = await writer.set(root, b"1")
        assert await next_event(stream) == WatchEvent(EventType.NODE_DATA_CHANGED, root, stat.mzxid)
        await writer.set(root, b"2")
        _, child = await writer.create2(f"{root}/child")
        assert await next_event(stream) == WatchEvent(EventType.NODE_CHILDREN_CHANGED, root, child.czxid)
        await writer.delete(f"{root}/child")
        await client.sync()
        await client.exists(root, watch=stream)
        await writer.delete(root)
        deleted = await next_event(stream)
        assert (deleted.event_type, deleted.path) == (EventType.NODE_DELETED, root)


async def test_reads_of_missing_nodes_leave_no_watch(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        seen: list[WatchEvent] = []
        with pytest.raises(NoNodeError):
            await client.get(root, watch=seen.append)
        with pytest.raises(NoNodeError):
            await client.get_children(root, watch=seen.append)
        await client.create(root)
        await client.sync()
        assert seen == []


async def test_an_event_arrives_before_the_reply_that_shows_its_change(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root)
        log: list[str] = []

        async def change(number: int) -> None:
            await client.set(root, b"%d" % number)
            log.append(f"reply {number}")

        def note(event: WatchEvent) -> None:
            log.append(f"event {len(log) // 2} {event.event_type.name}")

        for number in range(50):
            await client.get(root, watch=note)
            await change(number)
        expected = [(f"event {number} NODE_DATA_CHANGED", f"reply {number}") for number in range(50)]
        assert log == [line for pair in expected for line in pair]


async def test_a_stream_is_woken_before_the_reply_that_shows_the_change(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root)
        log: list[str] = []
        stream = WatchStream()

        async def follow() -> None:
            log.append((await anext(stream)).event_type.name)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            await client.get(root, watch=stream)
            await client.set(root, b"1")
            log.append("reply")
        assert log == ["NODE_DATA_CHANGED", "reply"]


@pytest.mark.parametrize("requests_max", [1, 7, 1000])
async def test_pipelined_requests_keep_their_order(hosts: str, root: str, requests_max: int) -> None:
    async with Client(hosts, session_timeout_ms=PATIENT_MS, requests_max=requests_max) as client:
        await client.create(root)
        count = 300
        stats = await asyncio.gather(*(client.set(root, b"%d" % number) for number in range(count)))
        assert [stat.version for stat in stats] == list(range(1, count + 1))
        assert all(later.mzxid == earlier.mzxid + 1 for earlier, later in pairwise(stats))
        written, read = await asyncio.gather(client.set(root, b"last"), client.get(root))
        assert read == (b"last", written)


async def test_a_refused_request_in_a_pipeline_disturbs_no_other(hosts: str, root: str) -> None:
    async with Client(hosts, session_timeout_ms=PATIENT_MS) as client:
        await client.create(root)
        results = await asyncio.gather(
            *(client.set(root, b"", -1 if number % 3 else 10_000) for number in range(90)),
            return_exceptions=True,
        )
        assert [isinstance(result, BadVersionError) for result in results] == [
            not number % 3 for number in range(90)
        ]


async def test_an_oversized_request_is_refused_here_and_harms_nothing(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        states = States(client)
        with pytest.raises(RequestTooLargeError) as caught:
            await client.create(root, b"x" * 1_100_000)
        assert caught.value.definite
        assert "limits.frame_bytes_max of the nodes" in caught.value.remedy
        await client.create(root, b"x" * 900_000)
        assert (await client.get(root))[1].data_length == 900_000
        assert states.seen == []


async def test_a_waiting_call_can_be_given_up(hosts: str, root: str) -> None:
    async with connect(hosts, requests_max=1) as client:
        await client.create(root)
        calls = [asyncio.ensure_future(client.set(root, b"%d" % number)) for number in range(5)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        calls[3].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in done] == [False] * 3 + [True, False]
        assert (await client.get(root))[0] == b"4"
        assert (await client.get(root))[1].version == 4


async def test_the_session_and_its_watches_survive_the_death_of_their_server(
    system: System, hosts: str, root: str
) -> None:
    serving = system.node_ids[1]
    async with connect(hosts, rng=starting_at(hosts, system.host(serving))) as client:
        others = ",".join(system.host(node_id) for node_id in system.node_ids if node_id != serving)
        states = States(client)
        session_id = client.session_id
        await client.create(root)
        ephemeral = await client.create(f"{root}/e", b"", CreateMode.EPHEMERAL)
        stream, quiet = WatchStream(), WatchStream()
        for path in ("data", "gone", "kids", "quiet"):
            await client.create(f"{root}/{path}")
        await client.get(f"{root}/data", watch=stream)
        await client.get(f"{root}/gone", watch=stream)
        await client.get_children(f"{root}/kids", watch=stream)
        await client.exists(f"{root}/new", watch=stream)
        await client.get(f"{root}/quiet", watch=quiet)
        system.kill(serving)
        async with connect(others) as writer:
            # Between the connections: what happens now is told when the watches are armed again.
            changes = Transaction().set(f"{root}/data", b"1").delete(f"{root}/gone")
            await writer.multi(changes.create(f"{root}/kids/k").create(f"{root}/new"))
            events = [await next_event(stream) for _ in range(4)]
            assert {(event.event_type, event.path) for event in events} == {
                (EventType.NODE_DATA_CHANGED, f"{root}/data"),
                (EventType.NODE_DELETED, f"{root}/gone"),
                (EventType.NODE_CHILDREN_CHANGED, f"{root}/kids"),
                (EventType.NODE_CREATED, f"{root}/new"),
            }
            await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
            assert client.session_id == session_id
            stat = await client.exists(ephemeral)
            assert stat is not None
            assert stat.ephemeral_owner == session_id
            # This one was armed again silently and still works.
            await writer.set(f"{root}/quiet", b"1")
            assert (await next_event(quiet)).path == f"{root}/quiet"


async def test_more_watches_than_one_request_holds_are_armed_again(
    system: System, hosts: str, root: str
) -> None:
    serving = system.node_ids[2]
    async with connect(hosts, rng=starting_at(hosts, system.host(serving))) as client:
        states = States(client)
        stream = WatchStream()
        await client.create(root)
        # 2,000 paths of 150 bytes: three SetWatches requests of at most 120 KiB.
        paths = [f"{root}/{'x' * 140}{number:05}" for number in range(2000)]
        await asyncio.gather(*(client.exists(path, watch=stream) for path in paths))
        system.kill(serving)
        await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
        await client.sync()
        transaction = Transaction()
        for path in paths:
            transaction.create(path)
        await client.multi(transaction)
        assert [(await next_event(stream)).path for _ in paths] == paths


async def test_a_silent_server_is_left_and_lost_requests_are_indefinite(
    system: System, hosts: str, root: str
) -> None:
    serving = next(node_id for node_id in system.node_ids if node_id != system.leader())
    async with connect(hosts, rng=starting_at(hosts, system.host(serving))) as client:
        states = States(client)
        session_id = client.session_id
        await client.create(root)
        system.pause(serving)
        try:
            lost = await asyncio.gather(*(client.set(root, b"x") for _ in range(3)), return_exceptions=True)
            for error in lost:
                assert isinstance(error, ConnectionLossError)
                assert (error.definite, error.retriable) == (False, True)
            assert states.seen[0] is ClientState.SUSPENDED
            # Called without a connection: waits for the next one instead of failing.
            await client.sync(root)
            assert client.session_id == session_id
        finally:
            system.resume(serving)
        # Unknown means: each at most once, in order.
        assert (await client.get(root))[1].version in range(4)


async def test_a_session_can_be_handed_over_with_its_ephemerals(hosts: str, root: str) -> None:
    client = connect(hosts)
    await client.start()
    await client.create(root, b"", CreateMode.EPHEMERAL)
    token = client.session_token
    await client.close(keep_session=True)
    async with connect(hosts, resume=token) as resumed:
        assert resumed.session_id == token.session_id
        stat = await resumed.exists(root)
        assert stat is not None
        assert stat.ephemeral_owner == token.session_id


async def test_a_wrong_password_resumes_nothing(hosts: str) -> None:
    async with connect(hosts) as client:
        forged = client.session_token._replace(password=b"x" * 16)
        with pytest.raises(SessionExpiredError):
            await connect(hosts, resume=forged).start()
        await client.sync()


async def test_a_session_that_expired_never_comes_back(hosts: str, root: str) -> None:
    client = Client(hosts, session_timeout_ms=1000)
    await client.start()
    await client.create(root, b"", CreateMode.EPHEMERAL)
    token = client.session_token
    async with connect(hosts) as other:
        gone = WatchStream()
        assert await other.exists(root, watch=gone) is not None
        await client.close(keep_session=True)
        assert (await next_event(gone)).event_type is EventType.NODE_DELETED
        with pytest.raises(SessionExpiredError):
            await Client(hosts, resume=token).start()


async def test_a_lost_session_is_final_and_everybody_is_told(hosts: str, root: str) -> None:
    async with CuttingProxy(first_of(hosts)) as proxy:
        client = Client(proxy.hosts, session_timeout_ms=1000)
        await client.start()
        try:
            stream = WatchStream()
            await client.create(root)
            await client.get(root, watch=stream)
            await outlive_session(client, proxy, hosts, f"{root}/ephemeral")
            states = States(client)
            assert await next_event(stream) == WatchEvent(EventType.NONE, root, -1)
            with pytest.raises(SessionExpiredError) as caught:
                await client.get(root)
            assert caught.value.definite
        finally:
            await client.close()
        assert states.seen == [ClientState.CLOSED]


async def test_a_closed_client_refuses_everything_and_ends_its_streams(hosts: str, root: str) -> None:
    client = connect(hosts)
    await client.start()
    await client.create(root)
    stream = WatchStream()
    await client.get_children(root, watch=stream)
    calls = [asyncio.ensure_future(client.set(root, b"x")) for _ in range(50)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await client.close()
    await client.close()
    # What was on the wire is answered before the session ends.
    assert [(await call).version for call in calls] == list(range(1, 51))
    assert (await next_event(stream)).event_type is EventType.NONE
    with pytest.raises(ClientClosedError) as caught:
        await client.get(root)
    assert caught.value.definite


async def test_writes_through_the_loss_of_the_leader_are_applied_at_most_once(
    system: System, hosts: str, root: str
) -> None:
    leader = system.leader()
    async with connect(hosts, rng=starting_at(hosts, system.host(leader))) as client:
        states = States(client)
        await client.create(root)
        acknowledged: list[int] = []
        unknown = definite = 0
        number = 0
        while ClientState.CONNECTED not in states.seen or len(acknowledged) < 60:
            number += 1
            if number == 30:
                system.kill(leader)
            try:
                await client.create(f"{root}/{number}")
                acknowledged.append(number)
            except ClientError as error:
                unknown += not error.definite
                definite += error.definite
        await client.sync(root)
        names = set(await client.get_children(root))
        assert {str(done) for done in acknowledged} <= names
        assert len(names) <= len(acknowledged) + unknown
        assert unknown >= 1
