"""Three real brokers that lose controllers, leaders, links and disks: nothing acknowledged goes with them.

Sessions last a second. Every link between brokers goes through a relay that a test can cut, or in which it
can hold control requests. Source: docs/internals/requirements.md, [0.A], [0.E], [0.disc3], [2.4], [3.1],
[3.5].
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.wire.codec import encode_request
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.broker_links import BrokerLinks
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, partitions_as_seen_by, produce, record_batch
from tests.support.nodes import eventually

DEADLINE_S = 60.0
NOT_LEADER_OR_FOLLOWER = 6
LEADER_NOT_AVAILABLE = 5
REPLICA_LAG_MS = 1500
PRODUCE = 0

Linked = tuple[BrokerCluster, BrokerLinks]


@pytest.fixture(scope="module")
def linked() -> Iterator[Linked]:
    settings = {"broker": {"replica_lag_time_max_ms": REPLICA_LAG_MS}}
    cluster = BrokerCluster(session_timeout_ms=SHORT_SESSION_MS, settings=settings)
    links = BrokerLinks(cluster)
    with contextlib.closing(links), cluster:
        yield cluster, links


@pytest.fixture
def links(linked: Linked) -> BrokerLinks:
    """The relays between the brokers, none of them cut."""
    cluster, found = linked
    for broker_id in cluster.brokers:
        found.mend(broker_id)
    return found


@pytest.fixture
def cluster(linked: Linked, links: BrokerLinks) -> BrokerCluster:
    """Three ready brokers; a test may kill, pause or empty any of them."""
    running, _ = linked
    for broker_id, broker in running.brokers.items():
        if broker.paused:
            running.resume(broker_id)
        if not running.running(broker_id):
            running.start_broker(broker_id)
    running.wait_ready()
    return running


def create(
    cluster: BrokerCluster,
    topic: str,
    assignments: Sequence[Sequence[int]] = ((1, 2, 3),),
    *,
    isr_min: int = 2,
) -> None:
    cluster.wait_controller_known()
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic(
        topic,
        len(assignments),
        replica_assignment=[list(row) for row in assignments],
        config={"min.insync.replicas": str(isr_min)},
    )
    admin.create_topics([wanted], operation_timeout=20)[topic].result(30)
    cluster.wait_in_sync(topic)


def append(cluster: BrokerCluster, topic: str, partition: int = 0) -> int:
    """Append a record, acknowledged by all; returns its offset, and waits for a leader as clients do."""

    def attempt() -> list[int]:
        leader = cluster.leader_of(topic, partition)
        row = produce(cluster.address(leader), topic, partition, record_batch([b"value"]))
        assert row.error_code == 0, f"error {row.error_code}"
        return [row.base_offset]

    return eventually(attempt, DEADLINE_S, f"a record is appended to {topic}-{partition}")[0]


def wait_for_controller(cluster: BrokerCluster, above: int) -> int:
    """Wait for the controller of a later epoch; returns its broker."""

    def look() -> int:
        # Both change in one transaction, so the epoch is read first.
        if cluster.controller_epoch() <= above:
            return 0
        return int((cluster.read("/controller") or {}).get("brokerid", 0))

    return eventually(look, DEADLINE_S, f"a controller of an epoch above {above}")


# -- controllers ---------------------------------------------------------------------------------------------


def spoiled(kind: str, controller: int) -> bytes | None:
    """What a careless hand writes to /controller; None: it deletes the node."""
    record: dict[str, Any] = {"version": 2, "brokerid": controller, "timestamp": "0"}
    another = controller % 3 + 1
    return {
        "deleted": None,
        "malformed": b"{",
        "empty": b"",
        "nobody": json.dumps(record | {"brokerid": -1}).encode(),
        "another live broker": json.dumps(record | {"brokerid": another}).encode(),
        "a dead broker": json.dumps(record | {"brokerid": 99}).encode(),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["deleted", "malformed", "empty", "nobody", "another live broker", "a dead broker"]
)
def test_a_spoiled_controller_node_leads_to_an_election_in_the_next_epoch(
    cluster: BrokerCluster, kind: str
) -> None:
    controller, epoch = cluster.controller_id(), cluster.controller_epoch()
    value = spoiled(kind, controller)
    if value is None:
        cluster.zookeeper.delete("/controller")
    else:
        cluster.zookeeper.set("/controller", value)
    elected = wait_for_controller(cluster, epoch)
    assert cluster.controller_epoch() == epoch + 1
    eventually(lambda: cluster.status(elected)["controller"], DEADLINE_S, "it leads")

    def leading() -> list[int]:
        return [each for each in cluster.brokers if cluster.status(each)["controller"]]

    eventually(lambda: leading() == [elected], DEADLINE_S, "the former controller has resigned")
    create(cluster, f"after-{kind.replace(' ', '-')}")


def test_a_controller_that_wakes_up_after_its_session_changes_nothing(cluster: BrokerCluster) -> None:
    create(cluster, "asleep")
    controller, epoch = cluster.controller_id(), cluster.controller_epoch()
    cluster.pause(controller)
    elected = wait_for_controller(cluster, epoch)
    assert elected != controller
    cluster.wait_controller_known()
    create_with = AdminClient(quiet(cluster.address(elected)))
    create_with.create_topics([NewTopic("meanwhile", 1, 2)], operation_timeout=20)["meanwhile"].result(30)
    cluster.resume(controller)
    cluster.wait_ready()
    eventually(lambda: cluster.status(controller)["controller"] is None, DEADLINE_S, "it has resigned")
    cluster.wait_in_sync("asleep")
    cluster.wait_in_sync("meanwhile")
    assert cluster.controller_epoch() == epoch + 1
    assert append(cluster, "asleep") == 0


def test_a_missing_controller_epoch_goes_on_from_the_highest_in_the_states(cluster: BrokerCluster) -> None:
    create(cluster, "highest")
    highest = cluster.state("highest", 0)["controller_epoch"]
    cluster.zookeeper.delete("/controller_epoch")
    cluster.zookeeper.delete("/controller")
    eventually(
        lambda: cluster.zookeeper.exists("/controller_epoch") and cluster.controller_epoch() > highest,
        DEADLINE_S,
        "the next epoch is above all epochs of states",
    )
    cluster.wait_ready()
    assert append(cluster, "highest") == 0


def test_a_controller_killed_between_decision_and_requests_is_succeeded(
    cluster: BrokerCluster, links: BrokerLinks
) -> None:
    controller, epoch = cluster.wait_controller_known(), cluster.controller_epoch()
    held = [relay for (asking, _), relay in links.relays.items() if asking == controller]
    for relay in held:
        relay.hold(lambda seen: "undelivered" in repr(seen.request))
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic("undelivered", 3, 3)], operation_timeout=1)
    eventually(lambda: all(relay.held for relay in held), DEADLINE_S, "both others were to be told")
    assert cluster.state("undelivered", 0), "the decision is published"
    cluster.kill(controller)
    wait_for_controller(cluster, epoch)
    for partition in range(3):
        append(cluster, "undelivered", partition)
    cluster.start_broker(controller)
    cluster.wait_ready()
    cluster.wait_in_sync("undelivered")


# -- leaders -------------------------------------------------------------------------------------------------


def test_a_leader_that_wakes_up_after_its_successor_was_elected_commits_nothing(
    cluster: BrokerCluster,
) -> None:
    """The seed's race: A is paused, B is elected, A wakes up with a record that waits in its socket."""
    create(cluster, "race")
    assert append(cluster, "race") == 0
    former, before = cluster.leader_of("race", 0), cluster.state("race", 0)
    cluster.pause(former)
    eventually(
        lambda: cluster.state("race", 0)["leader"] not in (former, -1), DEADLINE_S, "another one is elected"
    )
    with BrokerLink(cluster.address(former), timeout_s=40) as link:
        data = [{"name": "race", "partition_data": [{"index": 0, "records": record_batch([b"too late"])}]}]
        values = {"transactional_id": None, "acks": -1, "timeout": 20_000, "topic_data": data}
        link.send(PRODUCE, 9, encode_request(PRODUCE, 9, values))
        assert append(cluster, "race") == 1
        cluster.resume(former)
        answer = link.answer(PRODUCE, 9).responses[0].partition_responses[0]
    assert answer.error_code == NOT_LEADER_OR_FOLLOWER
    cluster.wait_ready()
    cluster.wait_in_sync("race")
    now = cluster.state("race", 0)
    assert now["leader"] != former and now["leader_epoch"] > before["leader_epoch"]
    assert append(cluster, "race") == 2, "the record that came too late is nowhere"
    again = produce(cluster.address(former), "race", 0, record_batch([b"again"]))
    assert again.error_code == NOT_LEADER_OR_FOLLOWER


def test_a_leader_whose_state_was_changed_meanwhile_cannot_shrink_the_isr(
    cluster: BrokerCluster, links: BrokerLinks
) -> None:
    """A still believes to lead, and its followers are gone: its shrink is refused by the state's version."""
    controller = cluster.controller_id()
    former, *others = sorted(cluster.brokers, key=lambda each: each == controller)
    create(cluster, "refused", [(former, *others)])
    conflicts = cluster.metric(former, "quorate_broker_isr_conflicts_total")
    # Cut before: nobody can send it what the quorum will say, so that only the version can stop it.
    cut = [relay for (_, asked), relay in links.relays.items() if asked == former]
    for relay in cut:
        relay.cut()
    assert produce(cluster.address(former), "refused", 0, record_batch([b"value"]), acks=1).error_code == 0
    path = "/brokers/topics/refused/partitions/0/state"
    state = cluster.state("refused", 0)
    changed = state | {"leader": others[0], "leader_epoch": state["leader_epoch"] + 1, "isr": others}
    cluster.zookeeper.set(path, json.dumps(changed).encode())
    eventually(
        lambda: cluster.metric(former, "quorate_broker_isr_conflicts_total") > conflicts,
        DEADLINE_S,
        "its write is refused",
    )
    row = produce(cluster.address(former), "refused", 0, record_batch([b"value"]), timeout_ms=1000)
    assert row.error_code == NOT_LEADER_OR_FOLLOWER
    assert cluster.state("refused", 0) == changed


def test_a_follower_cut_off_from_the_brokers_leaves_the_isr_and_returns(
    cluster: BrokerCluster, links: BrokerLinks
) -> None:
    controller = cluster.controller_id()
    follower = next(each for each in cluster.brokers if each != controller)
    others = [each for each in cluster.brokers if each != follower]
    create(cluster, "cut", [[*others, follower]])
    append(cluster, "cut")
    links.cut_off(follower)
    behind = produce(cluster.address(others[0]), "cut", 0, record_batch([b"value"]), acks=1)
    assert behind.base_offset == 1, "only a follower that lacks a record falls behind"
    eventually(
        lambda: sorted(cluster.state("cut", 0)["isr"]) == others,
        DEADLINE_S,
        "it has left the ISR by its leader",
    )
    assert cluster.state("cut", 0)["leader"] == others[0]
    assert append(cluster, "cut") == 2, "acks=all goes on"

    def known(broker_id: int) -> bool:
        return sorted(partitions_as_seen_by(cluster.address(broker_id), "cut")[0].isr_nodes) == others

    for broker_id in cluster.brokers:
        eventually(lambda b=broker_id: known(b), DEADLINE_S, f"broker {broker_id} shows it")  # type: ignore[misc]

    cluster.kill(*others)
    eventually(lambda: cluster.state("cut", 0)["leader"] == -1, DEADLINE_S, "it is not elected")
    for broker_id in others:
        cluster.start_broker(broker_id)
    links.mend(follower)
    cluster.wait_ready()
    cluster.wait_in_sync("cut")
    assert append(cluster, "cut") == 3


# -- disks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("controller_dies_too", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_emptied_broker_that_starts_first_waits_for_those_that_have_the_records(
    cluster: BrokerCluster, controller_dies_too: bool
) -> None:
    topic = f"emptied-{controller_dies_too}"
    create(cluster, topic, [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    for partition in range(3):
        append(cluster, topic, partition)
    emptied = cluster.leader_of(topic, 0)
    others = [each for each in cluster.brokers if each != emptied]
    cluster.kill(*cluster.brokers)
    cluster.empty(emptied)
    # Another incarnation is refused as long as the former one's session lives.
    eventually(lambda: cluster.generation(emptied) == 0, DEADLINE_S, "its registration has gone")
    cluster.start_broker(emptied)
    cluster.wait_ready(emptied)
    if controller_dies_too:
        cluster.kill(emptied)
        cluster.start_broker(emptied)
        cluster.wait_ready(emptied)
    states = [cluster.state(topic, partition) for partition in range(3)]
    assert [state["leader"] for state in states] == [-1, -1, -1]
    assert all(emptied not in state["isr"] for state in states)
    for broker_id in others:
        cluster.start_broker(broker_id)
    cluster.wait_ready()
    cluster.wait_in_sync(topic)
    assert [append(cluster, topic, partition) for partition in range(3)] == [1, 1, 1]


def test_a_lone_replica_is_offline_while_its_broker_is_dead_and_back_with_it(cluster: BrokerCluster) -> None:
    lone = next(each for each in cluster.brokers if each != cluster.controller_id())
    asked = next(each for each in cluster.brokers if each != lone)
    create(cluster, "lone", [[lone]], isr_min=1)
    append(cluster, "lone")
    cluster.kill(lone)
    eventually(lambda: cluster.state("lone", 0)["leader"] == -1, DEADLINE_S, "it is offline")

    def offline() -> bool:
        seen = partitions_as_seen_by(cluster.address(asked), "lone")[0]
        return (seen.error_code, seen.leader_id) == (LEADER_NOT_AVAILABLE, -1)

    eventually(offline, DEADLINE_S, "Metadata says so")
    assert cluster.state("lone", 0)["isr"] == [lone]
    cluster.start_broker(lone)
    cluster.wait_ready(lone)
    assert append(cluster, "lone") == 1
