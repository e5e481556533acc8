"""kazoo's recipes, unchanged, on three nodes, with the Raft leader killed in the middle of each.

The participants of a recipe connect to different nodes. Assertions allow exactly what kazoo itself leaves
open when a connection breaks (a repeated put, a lost get of the unreliable queue), counted per broken
connection, and nothing more. The same tests pass against a real ZooKeeper (TESTED_SYSTEM=zookeeper). Source:
kazoo 2.11, its recipes' documentation; ZooKeeper recipes guide.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoNodeError, RolledBackError
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat

from tests.support.nodes import System, eventually

SESSION_TIMEOUT_S = 10.0
DEADLINE_S = 30.0
RETRY: dict[str, Any] = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.4}


class Clients:
    """kazoo clients that prefer one node each, and count how often each lost its connection or session."""

    def __init__(self, nodes: System) -> None:
        self._nodes = nodes
        self._all: list[KazooClient] = []
        self.losses: Tally[int] = Tally()
        self.sessions_lost: list[int] = []

    def connect(self, node_id: int) -> KazooClient:
        """Start a client at one node; it goes to the others when that one is gone."""
        client = KazooClient(
            hosts=self._nodes.hosts_from(node_id),
            timeout=SESSION_TIMEOUT_S,
            randomize_hosts=False,
            connection_retry=RETRY,
            command_retry=RETRY,
        )
        number = len(self._all)
        self._all.append(client)

        def listen(state: str) -> None:
            if state == KazooState.SUSPENDED:
                self.losses[number] += 1
            elif state == KazooState.LOST:
                self.sessions_lost.append(number)

        client.start(timeout=DEADLINE_S)
        client.add_listener(listen)
        return client

    def three(self) -> list[KazooClient]:
        """One client at each node."""
        return [self.connect(node_id) for node_id in self._nodes.node_ids]

    def losses_max(self) -> int:
        """How many requests can have an unknown outcome by now, one request at a time per client."""
        return sum(self.losses.values())

    def close(self) -> None:
        """End all sessions."""
        for client in self._all:
            client.stop()
            client.close()


@pytest.fixture
def clients(nodes: System) -> Iterator[Clients]:
    """Clients of the three nodes; no session may have been lost when a test ends."""
    made = Clients(nodes)
    try:
        yield made
        assert made.sessions_lost == []
    finally:
        made.close()


class Workers:
    """Daemon threads for participants that block: one that blocks for ever fails its test and not the run."""

    def submit(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        """Run a call in a thread of its own."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work(*arguments, **options))
            except BaseException as error:  # noqa: BLE001 - handed to whoever asks the future
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


@pytest.fixture
def workers() -> Workers:
    """Threads for participants that block."""
    return Workers()


def kill_leader(nodes: System) -> int:
    """Kill the Raft leader, wait until another node leads, and start the killed node again."""
    killed = nodes.leader()
    nodes.kill(killed)
    nodes.leader()
    nodes.start_node(killed)
    return killed


def results(futures: list[Future[Any]]) -> list[Any]:
    """Wait for all participants and return what they returned."""
    return [future.result(DEADLINE_S) for future in futures]


class Inside:
    """Counts who is inside a protected section, and remembers the most that were in it at once."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.now = 0
        self.most = 0
        self.total = 0

    def __enter__(self) -> None:
        with self._guard:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_exc: object) -> None:
        with self._guard:
            self.now -= 1


def sync_all(participants: Iterable[KazooClient]) -> None:
    """Bring every client's node up to date: a node may lag, and shows others' writes only behind a sync."""
    for client in participants:
        client.retry(client.sync, "/")


def test_lock(nodes: System, clients: Clients, workers: Workers) -> None:
    """A lock protects an unguarded counter through the death of the leader."""
    rounds = 12
    participants = clients.three()
    participants[0].create("/lock-counter", b"0")
    sync_all(participants)
    inside = Inside()

    def count(client: KazooClient) -> None:
        for _ in range(rounds):
            with client.Lock("/lock", "counter"), inside:
                value, _stat = client.retry(client.get, "/lock-counter")
                client.retry(client.set, "/lock-counter", b"%d" % (int(value) + 1))

    running = [workers.submit(count, client) for client in participants]
    eventually(lambda: inside.total >= rounds, DEADLINE_S, "a third of the rounds is done")
    kill_leader(nodes)
    results(running)
    assert inside.most == 1
    sync_all(participants)
    assert participants[2].get("/lock-counter")[0] == b"%d" % (3 * rounds)
    assert participants[1].get_children("/lock") == []


def test_read_write_lock(nodes: System, clients: Clients, workers: Workers) -> None:
    """Readers share, a writer waits for all of them, and later readers wait for the writer."""
    first, second, third = clients.three()
    readers = [first.ReadLock("/rwlock", "r1"), second.ReadLock("/rwlock", "r2")]
    for reader in readers:
        assert reader.acquire(timeout=DEADLINE_S)
    writer = third.WriteLock("/rwlock", "w")
    writing = workers.submit(writer.acquire, timeout=DEADLINE_S)
    eventually(lambda: len(first.get_children("/rwlock")) == 3, DEADLINE_S, "the writer queues")
    kill_leader(nodes)
    assert readers[0].release()
    assert not writing.done()
    late = first.ReadLock("/rwlock", "late")
    reading = workers.submit(late.acquire, timeout=DEADLINE_S)
    assert readers[1].release()
    assert writing.result(DEADLINE_S)
    assert not reading.done()
    assert writer.release()
    assert reading.result(DEADLINE_S)
    assert late.release()


def test_semaphore(nodes: System, clients: Clients, workers: Workers) -> None:
    """Never more leases than allowed, and that many at once."""
    participants = [*clients.three(), *clients.three()]
    inside, rounds = Inside(), 5

    def work(client: KazooClient) -> None:
        for _ in range(rounds):
            semaphore = client.Semaphore("/semaphore", max_leases=2)
            assert semaphore.acquire(timeout=DEADLINE_S)
            with inside:
                client.retry(client.exists, "/semaphore")
            assert semaphore.release()

    held = [client.Semaphore("/semaphore", max_leases=2) for client in participants[:2]]
    for semaphore in held:
        assert semaphore.acquire(timeout=DEADLINE_S)
    running = [workers.submit(work, client) for client in participants[2:]]
    assert inside.total == 0
    kill_leader(nodes)
    assert inside.total == 0
    for semaphore in held:
        assert semaphore.release()
    results(running)
    assert inside.most <= 2
    assert inside.total == 4 * rounds


def test_election(nodes: System, clients: Clients, workers: Workers) -> None:
    """One candidate is elected at a time, in the order of candidacy; the next one follows when it is gone."""
    participants = clients.three()
    inside = Inside()
    elected: list[str] = []
    resign = {name: threading.Event() for name in ("one", "two", "three")}

    def lead(name: str) -> None:
        with inside:
            elected.append(name)
            assert resign[name].wait(DEADLINE_S)

    elections = [
        client.Election("/election", name) for client, name in zip(participants, resign, strict=True)
    ]
    running = []
    for position, (election, name) in enumerate(zip(elections, resign, strict=True), start=1):
        running.append(workers.submit(election.run, lead, name))
        eventually(lambda n=position: len(elections[0].contenders()) == n, DEADLINE_S, f"{name} stands")  # type: ignore[misc]
    eventually(lambda: elected == ["one"], DEADLINE_S, "the first candidate leads")
    kill_leader(nodes)
    for election in elections:
        client = election.lock.client
        sync_all([client])
        assert client.retry(election.contenders) == ["one", "two", "three"]
    assert elected == ["one"]
    resign["one"].set()
    eventually(lambda: elected == ["one", "two"], DEADLINE_S, "the second candidate leads")
    resign["two"].set()
    eventually(lambda: len(elected) == 3, DEADLINE_S, "the third candidate leads")
    resign["three"].set()
    results(running)
    assert elected == ["one", "two", "three"]
    assert inside.most == 1


def test_counter(nodes: System, clients: Clients, workers: Workers) -> None:
    """No increment is lost; a retry after a broken connection may count one twice (kazoo's own retry)."""
    participants = clients.three()
    rounds = 40
    done = Inside()

    def count(client: KazooClient) -> None:
        counter = client.Counter("/counter")
        for _ in range(rounds):
            counter += 1
            with done:
                pass

    running = [workers.submit(count, client) for client in participants]
    eventually(lambda: done.total >= rounds, DEADLINE_S, "a third of the increments is done")
    kill_leader(nodes)
    results(running)
    sync_all(participants)
    values = {client.retry(lambda c=client: c.Counter("/counter").value) for client in participants}
    assert len(values) == 1
    assert 3 * rounds <= values.pop() <= 3 * rounds + clients.losses_max()


def test_queue(nodes: System, clients: Clients, workers: Workers) -> None:
    """Each producer's entries come out in its order; only a broken connection loses or repeats one."""
    producer, other_producer, consumer = clients.three()
    count = 60
    consumed: list[bytes] = []

    def produce(client: KazooClient, name: str) -> None:
        queue = client.Queue("/queue")
        for number in range(count):
            client.retry(queue.put, b"%s %03d" % (name.encode(), number))

    def consume() -> None:
        queue = consumer.Queue("/queue")
        while not (all(future.done() for future in running) and len(queue) == 0):
            value = queue.get()
            if value is not None:
                consumed.append(value)

    running = [workers.submit(produce, producer, "a"), workers.submit(produce, other_producer, "b")]
    consuming = workers.submit(consume)
    eventually(lambda: len(consumed) >= count // 2, DEADLINE_S, "a quarter of the entries is consumed")
    kill_leader(nodes)
    results([*running, consuming])
    wanted = {b"%s %03d" % (name, number) for name in (b"a", b"b") for number in range(count)}
    assert set(consumed) <= wanted
    assert len(wanted - set(consumed)) <= clients.losses_max()
    assert len(consumed) - len(set(consumed)) <= clients.losses_max()
    for name in (b"a", b"b"):
        own = [value for value in consumed if value.startswith(name)]
        assert own == sorted(own)


def test_locking_queue(nodes: System, clients: Clients, workers: Workers) -> None:
    """Every entry is consumed; an entry locked by a consumer that went away is taken by another."""
    producer, *consumers = clients.three()
    count = 40
    consumed: list[bytes] = []
    queue = producer.LockingQueue("/locking-queue")

    def consume(client: KazooClient, *, until_empty: bool) -> None:
        while not (until_empty and client.retry(len, client.LockingQueue("/locking-queue")) == 0):
            own = client.LockingQueue("/locking-queue")
            try:
                value = own.get(timeout=0.5)
            except ConnectionLoss:
                continue
            if value is None:
                if until_empty:
                    continue
                return
            if finish(own):
                consumed.append(value)

    def finish(own: Any) -> bool:
        while True:
            try:
                return bool(own.consume())
            except ConnectionLoss:
                continue
            except NoNodeError:
                return True  # the transaction whose reply was lost removed entry and lock

    for number in range(count):
        producer.retry(queue.put, b"%03d" % number)
    running = [workers.submit(consume, client, until_empty=False) for client in consumers]
    eventually(lambda: len(consumed) >= count // 4, DEADLINE_S, "a quarter of the entries is consumed")
    kill_leader(nodes)
    results(running)
    abandoned = clients.connect(nodes.node_ids[0])
    abandoned.LockingQueue("/locking-queue").put(b"locked and left", priority=1)
    assert abandoned.LockingQueue("/locking-queue").get(timeout=DEADLINE_S) == b"locked and left"
    # Ending these sessions frees what they locked, also through a create whose reply was lost.
    for client in (abandoned, *consumers):
        client.stop()
    clients.sessions_lost.clear()
    consume(clients.connect(nodes.node_ids[-1]), until_empty=True)
    wanted = {b"%03d" % number for number in range(count)} | {b"locked and left"}
    assert set(consumed) == wanted
    assert len(consumed) - len(wanted) <= clients.losses_max()


def test_barrier(nodes: System, clients: Clients, workers: Workers) -> None:
    """Everybody waits while the barrier stands and passes once it is removed."""
    participants = clients.three()
    participants[0].Barrier("/barrier").create()
    sync_all(participants)
    passed = Inside()

    def wait(client: KazooClient) -> None:
        barrier = client.Barrier("/barrier")
        # A watch of a broken connection never fires: kazoo's users look again after a while.
        while not client.retry(barrier.wait, 0.5):
            pass
        with passed:
            assert client.retry(client.exists, "/barrier") is None

    running = [workers.submit(wait, client) for client in participants]
    kill_leader(nodes)
    sync_all(participants)
    assert participants[1].retry(participants[1].exists, "/barrier") is not None
    assert passed.total == 0
    participants[2].retry(participants[2].Barrier("/barrier").remove)
    results(running)
    assert passed.total == 3


def test_double_barrier(nodes: System, clients: Clients, workers: Workers) -> None:
    """Nobody starts before all have come, and nobody leaves before all are done."""
    participants = clients.three()
    participants[0].ensure_path("/double")
    sync_all(participants)
    barriers = [client.DoubleBarrier("/double", 3, f"p{n}") for n, client in enumerate(participants)]
    entering = [workers.submit(barrier.enter) for barrier in barriers[:2]]
    eventually(lambda: len(participants[2].get_children("/double")) == 2, DEADLINE_S, "two wait")
    assert not any(future.done() for future in entering)
    barriers[2].enter()
    results(entering)
    assert all(barrier.participating for barrier in barriers)
    kill_leader(nodes)
    sync_all(participants)
    members = participants[0].retry(participants[0].get_children, "/double")
    assert len(members) == 4  # three members and the node that says "ready"
    results([workers.submit(barrier.leave) for barrier in barriers])
    sync_all(participants)
    assert participants[0].retry(participants[0].get_children, "/double") == []


@pytest.mark.parametrize("kind", ["Party", "ShallowParty"])
def test_party(nodes: System, clients: Clients, kind: str) -> None:
    """All members see each other through all nodes, before and after the leader's death."""
    participants = clients.three()
    names = ["a", "b", "c"]
    path = f"/{kind}"
    parties = [getattr(client, kind)(path, name) for client, name in zip(participants, names, strict=True)]
    for party in parties:
        party.join()
    for party in parties:
        eventually(lambda p=party: sorted(p) == names, DEADLINE_S, "all members are seen")  # type: ignore[misc]
    before = {child: parties[0].client.get(f"{path}/{child}")[1].czxid for child in member_nodes(parties[0])}
    kill_leader(nodes)
    for party in parties:
        sync_all([party.client])
        assert sorted(party) == names
        assert {
            child: party.client.retry(party.client.get, f"{path}/{child}")[1].czxid
            for child in member_nodes(party)
        } == before
    parties[0].leave()
    for party in parties[1:]:
        eventually(lambda p=party: sorted(p) == names[1:], DEADLINE_S, "one member left")  # type: ignore[misc]
    participants[1].stop()
    clients.sessions_lost.clear()
    eventually(lambda: sorted(parties[2]) == ["c"], DEADLINE_S, "a member's session ended")


def member_nodes(party: Any) -> list[str]:
    """Names of a party's member nodes as its own client's node sees them."""
    children: list[str] = party.client.retry(party.client.get_children, party.path)
    return sorted(children)


def test_data_and_children_watch(nodes: System, clients: Clients) -> None:
    """Watchers on all nodes see values that only rise and end with the last one; children likewise."""
    participants = clients.three()
    writer = participants[0]
    writer.create("/watched", b"0")
    sync_all(participants)
    values: list[list[int]] = [[] for _ in participants]
    children: list[list[int]] = [[] for _ in participants]

    for number, client in enumerate(participants):

        def saw_value(data: bytes, _stat: ZnodeStat, n: int = number) -> None:
            values[n].append(int(data))

        def saw_children(names: list[str], n: int = number) -> None:
            children[n].append(len(names))

        client.DataWatch("/watched", saw_value)
        client.ChildrenWatch("/watched", saw_children)

    def write(first: int, last: int) -> None:
        for number in range(first, last + 1):
            writer.retry(writer.set, "/watched", b"%d" % number)
            writer.retry(writer.ensure_path, f"/watched/{number:03d}")

    write(1, 30)
    eventually(lambda: all(seen[-1] == 30 for seen in values), DEADLINE_S, "all saw value 30")
    kill_leader(nodes)
    write(31, 60)
    eventually(lambda: all(seen[-1] == 60 for seen in values), DEADLINE_S, "all saw the last value")
    eventually(lambda: all(seen[-1] == 60 for seen in children), DEADLINE_S, "all saw all children")
    for seen in [*values, *children]:
        assert seen == sorted(seen)


def test_transactions(nodes: System, clients: Clients, workers: Workers) -> None:
    """Each transaction happens once and wholly: two nodes always change together."""
    participants = clients.three()
    for path in ("/left", "/right"):
        participants[0].create(path, b"0")
    sync_all(participants)
    rounds, done = 25, Inside()

    def move(client: KazooClient) -> None:
        succeeded = 0
        while succeeded < rounds:
            value, stat = client.retry(client.get, "/left")
            transaction = client.transaction()
            transaction.check("/left", stat.version)
            transaction.set_data("/left", b"%d" % (int(value) + 1))
            transaction.set_data("/right", b"%d" % (int(value) + 1))
            try:
                answers = transaction.commit()
            except ConnectionLoss:
                continue
            if not isinstance(answers[0], Exception):
                succeeded += 1
                with done:
                    pass
            else:
                assert isinstance(answers[0], BadVersionError)
                assert all(isinstance(answer, Exception) for answer in answers)

    running = [workers.submit(move, client) for client in participants]
    eventually(lambda: done.total >= rounds, DEADLINE_S, "a third of the transactions is done")
    kill_leader(nodes)
    results(running)
    sync_all(participants)
    left, left_stat = participants[1].get("/left")
    right, right_stat = participants[1].get("/right")
    assert left == right == b"%d" % left_stat.version
    assert left_stat.version == right_stat.version
    assert left_stat.mzxid == right_stat.mzxid
    assert 3 * rounds <= left_stat.version <= 3 * rounds + clients.losses_max()


def test_failed_transaction_changes_nothing(nodes: System, clients: Clients) -> None:
    """A transaction whose check fails reports what ZooKeeper reports and leaves no trace."""
    first, second, _ = clients.three()
    first.create("/all-or-nothing", b"x")
    transaction = first.transaction()
    transaction.create("/all-or-nothing/child")
    transaction.check("/all-or-nothing", 7)
    transaction.delete("/all-or-nothing")
    answers = transaction.commit()
    assert [type(answer).__name__ for answer in answers] == [
        RolledBackError.__name__,
        BadVersionError.__name__,
        "RuntimeInconsistency",
    ]
    second.sync("/")
    assert second.get_children("/all-or-nothing") == []


def test_two_hundred_sessions_survive(nodes: System, clients: Clients) -> None:
    """Sessions, ephemerals and watches of two hundred clients outlive the Raft leader."""
    count = 200
    admin = clients.connect(nodes.node_ids[0])
    admin.create("/many", b"")
    for number in range(count):
        admin.create_async(f"/many/watched-{number}", b"before")
    many = [clients.connect(nodes.node_ids[number % 3]) for number in range(count)]
    admin.sync("/many")
    seen: list[list[bytes]] = [[] for _ in range(count)]
    creating = [
        client.create_async(f"/many/own-{number}", ephemeral=True, include_data=True)
        for number, client in enumerate(many)
    ]
    before = {}
    for number, client in enumerate(many):
        path, stat = creating[number].get(timeout=DEADLINE_S)
        before[path] = (stat.czxid, client.client_id[0])
        client.retry(client.sync, "/many")
        client.DataWatch(f"/many/watched-{number}", collector(seen[number]))
    assert seen == [[b"before"]] * count
    kill_leader(nodes)
    writer = clients.connect(nodes.leader())
    for number in range(count):
        writer.set_async(f"/many/watched-{number}", b"after")
    writer.retry(writer.sync, "/many")
    eventually(
        lambda: seen == [[b"before", b"after"]] * count,
        DEADLINE_S,
        "every watch fired once",
    )
    eventually(lambda: all(client.connected for client in many), DEADLINE_S, "all are connected")
    assert clients.sessions_lost == []
    for path, (czxid, session_id) in before.items():
        stat = writer.exists(path)
        assert stat is not None, f"{path} is gone"
        assert (stat.czxid, stat.ephemeralOwner) == (czxid, session_id)
    assert [client.client_id[0] for client in many] == [owner for _, owner in before.values()]
    stopping = [client.client_id[0] for client in many]
    assert len(set(stopping)) == count


def collector(into: list[bytes]) -> Callable[[bytes, ZnodeStat, WatchedEvent | None], None]:
    """A DataWatch callback that keeps each value it is shown."""

    def saw(data: bytes, _stat: ZnodeStat, _event: WatchedEvent | None) -> None:
        into.append(data)

    return saw
