"""What a kazoo client sees of its session: reconnects, its end elsewhere, no quorum, credentials, leases.

Every test runs against three real ZooKeeper servers and against three Quorate nodes, and passes on both. The
recipes themselves, with a leader killed in the middle, stand in test_kazoo_recipes.py. kazoo 2.11 knows no
persistent watches. Source: kazoo 2.11, its documentation of states, security and leases; ZooKeeper
programmer's guide 3.9, sessions and ACLs.
"""

from __future__ import annotations

import datetime as dt
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    NoAuthError,
)
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.security import (
    CREATOR_ALL_ACL,
    READ_ACL_UNSAFE,
    make_acl,
    make_digest_acl,
    make_digest_acl_credential,
)

from tests.support.clients import system
from tests.support.nodes import System, eventually

__all__ = ["system"]

SESSION_TIMEOUT_S = 8.0
DEADLINE_S = 40.0
RETRY: dict[str, Any] = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.4}


class Clients:
    """kazoo clients of one system, each at a server of its choice, and the states they went through."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._all: list[KazooClient] = []
        #: {client: states in order}
        self.states: dict[KazooClient, list[str]] = {}

    def connect(self, number: int = 0, **options: Any) -> KazooClient:
        """Start a client at the server with this place in the list; the others come after it."""
        client = KazooClient(
            hosts=self._system.hosts_from(self._system.node_ids[number]),
            timeout=SESSION_TIMEOUT_S,
            randomize_hosts=False,
            connection_retry=RETRY,
            command_retry=RETRY,
            **options,
        )
        self._all.append(client)
        seen = self.states[client] = []
        client.start(timeout=DEADLINE_S)
        client.add_listener(seen.append)
        return client

    def wait_states(self, client: KazooClient, *wanted: str) -> None:
        """Wait until a client went through exactly these states since it was started."""
        seen = self.states[client]
        eventually(lambda: len(seen) >= len(wanted), DEADLINE_S, f"states {wanted}")
        assert seen == list(wanted)

    def close(self) -> None:
        """End all sessions."""
        for client in self._all:
            client.stop()
            client.close()


@pytest.fixture
def ready(system: System) -> System:
    """The three servers, all running and ready; a test may stop any of them."""
    for node_id in system.node_ids:
        if not system.running(node_id):
            system.start_node(node_id)
    system.wait_ready()
    return system


@pytest.fixture
def clients(ready: System) -> Iterator[Clients]:
    made = Clients(ready)
    try:
        yield made
    finally:
        made.close()


def end_session(host: str, client_id: tuple[int, bytes]) -> None:
    """End a session from elsewhere, by its id and password, and wait until the server calls it dead.

    Its client takes it back as soon as it notices, and may win: then the next attempt ends it.
    """

    def dead() -> bool:
        session_id, password = client_id
        connect = struct.pack("!iqiqi", 0, 0, 8000, session_id, len(password)) + password + b"\0"
        close = struct.pack("!ii", 1, -11)
        address, port = host.split(":")
        with socket.create_connection((address, int(port)), timeout=DEADLINE_S) as connection:
            connection.sendall(b"".join(struct.pack("!i", len(frame)) + frame for frame in (connect, close)))
            answer = b""
            while part := connection.recv(4096):
                answer += part
        # a dead session gets a timeout of 0
        return len(answer) >= 12 and struct.unpack("!i", answer[8:12]) == (0,)

    eventually(dead, DEADLINE_S, "the session is dead")


def test_a_client_of_a_killed_server_goes_on_at_another_with_its_session(
    ready: System, clients: Clients
) -> None:
    client, other = clients.connect(0), clients.connect(1)
    session = client.client_id
    client.create("/own", b"", ephemeral=True)
    client.create("/seen", b"before")
    values: list[bytes] = []
    client.DataWatch("/seen", lambda value, _stat: values.append(value))
    ready.kill(ready.node_ids[0])
    clients.wait_states(client, KazooState.SUSPENDED, KazooState.CONNECTED)
    other.retry(other.set, "/seen", b"after")
    eventually(lambda: values[-1] == b"after", DEADLINE_S, "the watch outlived the connection")
    assert client.client_id == session
    assert client.retry(client.exists, "/own").ephemeralOwner == session[0]
    assert values == [b"before", b"after"]
    client.delete("/seen")


def test_a_session_that_was_ended_elsewhere_is_lost_and_followed_by_a_new_one(
    ready: System, clients: Clients
) -> None:
    client, other = clients.connect(0), clients.connect(1)
    session = client.client_id
    client.create("/ended", b"", ephemeral=True)
    other.sync("/ended")
    gone: list[WatchedEvent] = []
    assert other.exists("/ended", watch=gone.append).ephemeralOwner == session[0]
    end_session(ready.host(ready.node_ids[2]), session)
    ending = [KazooState.LOST, KazooState.CONNECTED]
    eventually(lambda: clients.states[client][-2:] == ending, DEADLINE_S, "it learns of it and starts anew")
    eventually(lambda: gone, DEADLINE_S, "the ephemeral node has gone")
    assert [(event.type, event.path) for event in gone] == [("DELETED", "/ended")]
    assert client.client_id[0] != session[0]
    client.create("/ended", b"", ephemeral=True)
    assert client.exists("/ended").ephemeralOwner == client.client_id[0]


def test_a_lock_whose_holder_lost_its_session_goes_to_the_next(ready: System, clients: Clients) -> None:
    holder, waiting = clients.connect(0), clients.connect(1)
    assert holder.Lock("/lost-lock", "holder").acquire(timeout=DEADLINE_S)
    lock = waiting.Lock("/lost-lock", "waiting")
    waiting.sync("/lost-lock")
    assert lock.contenders() == ["holder"]
    assert not lock.acquire(blocking=False)
    end_session(ready.host(ready.node_ids[2]), holder.client_id)
    assert lock.acquire(timeout=DEADLINE_S)
    assert lock.contenders() == ["waiting"]
    eventually(lambda: KazooState.LOST in clients.states[holder], DEADLINE_S, "the holder learns of it")
    lock.release()


def test_without_a_quorum_requests_are_lost_and_the_session_is_not(ready: System, clients: Clients) -> None:
    client = clients.connect(0)
    session = client.client_id
    client.create("/kept", b"", ephemeral=True)
    for node_id in ready.node_ids[1:]:
        ready.kill(node_id)
    clients.wait_states(client, KazooState.SUSPENDED)
    pending = client.create_async("/unknown", b"")
    assert not pending.ready()
    for node_id in ready.node_ids[1:]:
        ready.start_node(node_id)
    clients.wait_states(client, KazooState.SUSPENDED, KazooState.CONNECTED)
    assert client.client_id == session
    assert client.retry(client.exists, "/kept").ephemeralOwner == session[0]
    assert pending.get(timeout=DEADLINE_S) == "/unknown", "kazoo kept it until there was a server"


def test_a_digest_acl_lets_in_who_knows_the_password(ready: System, clients: Clients) -> None:
    alice, stranger = clients.connect(0), clients.connect(1)
    alice.add_auth("digest", "alice:secret")
    everything = make_digest_acl("alice", "secret", all=True)
    assert everything.id.id == make_digest_acl_credential("alice", "secret")
    alice.create("/alices", b"x", acl=[everything])
    alice.create("/alices/child", b"y", acl=CREATOR_ALL_ACL)
    alice.create("/readable", b"z", acl=[*READ_ACL_UNSAFE, everything])
    assert alice.get_acls("/alices/child")[0] == [everything]
    stranger.sync("/alices")
    stranger.add_auth("digest", "alice:guessed")
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: stranger.get("/alices"),
        lambda: stranger.get_children("/alices"),
        lambda: stranger.set("/alices", b""),
        lambda: stranger.create("/alices/other"),
        lambda: stranger.delete("/alices/child"),
        lambda: stranger.set_acls("/alices", CREATOR_ALL_ACL),
        lambda: stranger.set("/readable", b""),
    )
    for refused in attempts:
        with pytest.raises(NoAuthError):
            refused()
    assert stranger.get("/readable")[0] == b"z"
    with pytest.raises(InvalidACLError):
        stranger.create("/no-list", acl=[make_acl("digest", "no password", all=True)])

    # the credentials belong to the client: it presents them again at another server
    ready.kill(ready.node_ids[0])
    clients.wait_states(alice, KazooState.SUSPENDED, KazooState.CONNECTED)
    assert alice.retry(alice.get, "/alices/child")[0] == b"y"
    knowing = clients.connect(2, auth_data=[("digest", "alice:secret")])
    knowing.sync("/alices")
    stat = knowing.set_acls("/alices/child", READ_ACL_UNSAFE, version=0)
    assert stat.aversion == 1
    with pytest.raises(BadVersionError):
        knowing.set_acls("/alices", READ_ACL_UNSAFE, version=7)
    with pytest.raises(NoAuthError):
        knowing.set("/alices/child", b"")
    for path in ("/alices/child", "/alices", "/readable"):
        knowing.delete(path)


def test_an_unknown_scheme_fails_the_client(clients: Clients) -> None:
    client = clients.connect(0)
    with pytest.raises(AuthFailedError):
        client.add_auth("unheard-of", "x")
    # What kazoo does behind that (it may reconnect, and fails again) passes too quickly to be looked at.
    eventually(lambda: KazooState.LOST in clients.states[client], DEADLINE_S, "the client gives up")


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = dt.datetime(2030, 1, 1)  # noqa: DTZ001 - kazoo's leases use naive UTC

    def __call__(self) -> dt.datetime:
        """Tell the time, as kazoo asks for it."""
        return self.now


def test_leases_are_held_until_they_end_and_renewed_by_their_holder(ready: System, clients: Clients) -> None:
    first, second, third = (clients.connect(number) for number in range(3))
    clock, hour = Clock(), dt.timedelta(hours=1)

    def lease(client: KazooClient, holder: str) -> bool:
        return bool(client.NonBlockingLease("/lease", hour, holder, clock))

    assert lease(first, "a")
    assert not lease(second, "b")
    clock.now += hour / 2
    assert lease(first, "a"), "renewed"
    ready.kill(ready.leader())
    clock.now += hour / 2
    for client in (first, second, third):
        eventually(lambda c=client: c.connected, DEADLINE_S, "connected")  # type: ignore[misc]
    assert not second.retry(lease, second, "b"), "the renewal counts"
    clock.now += hour
    assert third.retry(lease, third, "c"), "it ended"
    assert not first.retry(lease, first, "a")

    def many(client: KazooClient, holder: str) -> bool:
        return bool(client.retry(client.MultiNonBlockingLease, 2, "/leases", hour, holder, clock))

    assert [many(first, "a"), many(second, "b"), many(third, "c")] == [True, True, False]
    clock.now += hour
    assert many(third, "c")
