"""The world itself: order of events, lanes, pauses, connections, lives, and that a seed repeats itself."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.messages import Append, AppendReply, Heartbeat
from quorum.raft.datadir.identity import Start
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.hello import PeerIdentity, RefusalReason
from quorum.raft.peers.peers import PeerNode
from quorum.server.client import ClientConnection
from tests.simulation.faults import FAULTS, PROFILES, SELDOM
from tests.simulation.network import UNACKNOWLEDGED_TIMEOUT_MS, Network, SimTransport, Weather
from tests.simulation.scheduler import Scheduler
from tests.simulation.settings import build_config, draw_sizes
from tests.simulation.sim_node import DiskSpeed, SimNode
from tests.simulation.sim_runtime import SimRuntime
from tests.simulation.timeline import Timeline
from tests.simulation.world import SHORT, Span, World, run_repeatably, run_seed
from tests.support.memory_disk import Cut, MemoryDisk, Stopped

INSTANT = Weather(delay_ms=(1.0, 1.0), late_chance=0.0, split_chance=0.0)


class FakeMachine:
    """A machine whose fsyncs all take the same time."""

    node_id = 1
    wall_offset_ms = 0

    def __init__(self) -> None:
        self.sync = 5.0
        self.hanging_lane = ""
        self.crashes = 0
        self.blocked_ms = 0.0
        self.escapes: list[BaseException] = []

    def sync_ms(self) -> float:
        return self.sync

    def hangs(self, lane: str) -> bool:
        return lane == self.hanging_lane

    def blocked(self, for_ms: float) -> None:
        self.blocked_ms = for_ms

    def crashed(self) -> None:
        self.crashes += 1

    def escaped(self, error: BaseException) -> None:
        self.escapes.append(error)


def new_runtime(scheduler: Scheduler) -> tuple[SimRuntime, FakeMachine]:
    machine = FakeMachine()
    return SimRuntime(scheduler, machine, scheduler.rng("life")), machine


# -- the scheduler --


def test_events_come_by_time_and_then_in_the_order_of_asking() -> None:
    scheduler = Scheduler(1)
    seen: list[tuple[float, str]] = []
    for delay_ms, name in ((5.0, "c"), (1.0, "a"), (5.0, "d"), (1.0, "b"), (9.0, "late")):
        scheduler.at(delay_ms, lambda each: seen.append((scheduler.now_ms, each)), name)
    scheduler.at(2.0, seen.append, (0.0, "cancelled")).cancel()
    scheduler.run(8.0)
    assert seen == [(1.0, "a"), (1.0, "b"), (5.0, "c"), (5.0, "d")]
    assert (scheduler.now_ms, scheduler.events) == (8.0, 4)


def test_a_stream_of_randomness_does_not_depend_on_others() -> None:
    one, other = Scheduler(7), Scheduler(7)
    other.rng("more").random()
    assert one.rng("network").random() == other.rng("network").random()
    assert one.rng("network") is one.rng("network")
    assert Scheduler(8).rng("network").random() != Scheduler(7).rng("network").random()


def test_every_event_is_followed_by_the_checks_with_the_node_that_ran() -> None:
    scheduler = Scheduler(1)
    runtime, _ = new_runtime(scheduler)
    actors: list[int] = []
    scheduler.after_event.append(actors.append)
    scheduler.at(1.0, lambda: None)
    scheduler.at(2.0, runtime.enter, lambda: None)
    scheduler.run(3.0)
    assert actors == [0, 1]


# -- the runtime of one life --


def test_a_turn_takes_what_was_asked_before_it_and_the_next_one_the_rest() -> None:
    scheduler = Scheduler(1)
    runtime, _ = new_runtime(scheduler)
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        runtime.call_soon(seen.append, "third")

    runtime.call_soon(first)
    runtime.call_soon(seen.append, "second")
    scheduler.run(10.0)
    assert seen == ["first", "second", "third"]
    assert scheduler.events == 2


def test_a_lane_works_in_order_and_takes_the_time_of_its_fsyncs() -> None:
    scheduler = Scheduler(1)
    runtime, machine = new_runtime(scheduler)
    seen: list[Any] = []

    def work() -> float:
        begun_ms = runtime.monotonic_ms()
        runtime.spend_sync()
        return runtime.monotonic_ms() - begun_ms

    def done(name: str) -> Callable[[float | None, BaseException | None], object]:
        return lambda spent_ms, error: seen.append((name, round(spent_ms or 0), error))

    for name in ("a", "b"):
        runtime.run_in_thread("journal", work, done(name))
    runtime.run_in_thread("snapshot", lambda: 1 // 0, lambda _, error: seen.append(type(error)))
    scheduler.run(machine.sync + 1)
    assert seen in ([("a", 5, None), ZeroDivisionError], [ZeroDivisionError, ("a", 5, None)])
    scheduler.run(2 * machine.sync + 1)
    assert seen[-1] == ("b", 5, None)


def test_what_syncs_in_the_loop_keeps_the_loop_busy() -> None:
    scheduler = Scheduler(1)
    runtime, machine = new_runtime(scheduler)
    seen: list[float] = []
    scheduler.at(1.0, runtime.enter, runtime.spend_sync)
    scheduler.at(2.0, runtime.enter, lambda: seen.append(scheduler.now_ms))
    scheduler.run(100.0)
    assert seen == [6.0]
    assert machine.blocked_ms == machine.sync


def test_a_pause_keeps_everything_for_later_and_the_clock_goes_on() -> None:
    scheduler = Scheduler(1)
    runtime, _ = new_runtime(scheduler)
    seen: list[str] = []
    before_ms = runtime.monotonic_ms()
    runtime.call_later(10.0, seen.append, "timer")
    scheduler.at(5.0, runtime.enter, seen.append, "message")
    runtime.pause()
    scheduler.run(500.0)
    assert (seen, runtime.held) == ([], 2)
    runtime.resume()
    scheduler.run(501.0)
    assert seen == ["message", "timer"]
    assert runtime.monotonic_ms() - before_ms > 500.0


def test_what_comes_in_a_pause_stays_behind_what_waits_for_the_loop() -> None:
    scheduler = Scheduler(1)
    runtime, _ = new_runtime(scheduler)
    seen: list[str] = []
    scheduler.at(1.0, runtime.enter, runtime.spend_sync)
    scheduler.at(2.0, runtime.enter, seen.append, "first")
    scheduler.at(3.0, runtime.pause)
    scheduler.at(4.0, runtime.enter, seen.append, "second")
    scheduler.run(20.0)
    assert seen == []
    runtime.resume()
    scheduler.run(30.0)
    assert seen == ["first", "second"]


def test_nothing_of_a_life_runs_after_its_end() -> None:
    scheduler = Scheduler(1)
    runtime, _ = new_runtime(scheduler)
    seen: list[object] = []
    runtime.call_soon(seen.append, "turn")
    runtime.call_later(1.0, seen.append, "timer")
    runtime.run_in_thread("journal", lambda: seen.append("work"), lambda *_: seen.append("done"))
    runtime.end()
    scheduler.run(100.0)
    assert seen == []


def test_a_crash_in_a_disk_call_and_an_escaping_exception_reach_the_machine() -> None:
    scheduler = Scheduler(1)
    runtime, machine = new_runtime(scheduler)

    def crash() -> None:
        raise Stopped

    runtime.call_soon(lambda: 1 // 0)
    runtime.run_in_thread("journal", crash, lambda *_: None)
    scheduler.run(100.0)
    assert [type(error) for error in machine.escapes] == [ZeroDivisionError]
    assert machine.crashes == 1


class HaltingDisk(MemoryDisk):
    """The disk of a runtime, with one file."""

    def __init__(self, runtime: SimRuntime) -> None:
        super().__init__(random.Random(1))
        self.file = self.create("/f")
        self.on_call, self.on_sync = runtime.disk_called, runtime.spend_sync


def write_twice(disk: HaltingDisk) -> str:
    for offset in range(2):
        disk.file.pwrite([b"x"], offset)
        disk.file.fdatasync()
    return "written"


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.sim_runtime.BESIDE_SHARE", 1.0)


@pytest.mark.usefixtures("beside")
def test_the_loop_runs_between_the_disk_calls_of_a_lane() -> None:
    scheduler = Scheduler(1)
    runtime, machine = new_runtime(scheduler)
    disk = HaltingDisk(runtime)
    seen: list[Any] = []
    runtime.run_in_thread("journal", lambda: write_twice(disk), lambda *told: seen.append(told))
    for after_ms in (0.5, 4.0, 8.0):
        scheduler.at(after_ms, runtime.enter, lambda: seen.append((disk.fsyncs, disk.content("/f"))))
    # The lane does not wait for the loop.
    scheduler.at(9.0, runtime.enter, runtime.spend_sync)
    scheduler.run(2 * machine.sync + 1)
    assert seen == [(0, b"x"), (0, b"x"), (1, b"xx")]
    assert disk.fsyncs == 2
    scheduler.run(100.0)
    assert seen[-1] == ("written", None)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("end_ms", [0.01, 1.0, 6.0])
def test_a_work_ends_with_its_life_between_two_calls(end_ms: float) -> None:
    scheduler = Scheduler(1)
    runtime, machine = new_runtime(scheduler)
    disk = HaltingDisk(runtime)
    seen: list[Any] = []

    def work() -> None:
        try:
            write_twice(disk)
        finally:
            # What unwinds does not reach the disk either.
            seen.append("unwound")
            disk.create("/more")

    runtime.run_in_thread("journal", work, lambda *told: seen.append(told))
    scheduler.run(end_ms)
    before = disk.fsyncs, disk.content("/f")
    runtime.end()
    scheduler.run(100.0)
    assert seen in ([], ["unwound"])
    assert (disk.fsyncs, disk.content("/f")) == before
    assert not disk.exists("/more")
    assert machine.crashes == 0


@pytest.mark.usefixtures("beside")
def test_a_lane_beside_the_loop_crashes_fails_and_pauses_like_any_other() -> None:
    scheduler = Scheduler(1)
    runtime, machine = new_runtime(scheduler)
    disk = HaltingDisk(runtime)
    seen: list[Any] = []
    runtime.run_in_thread("journal", lambda: 1 // 0, lambda _, error: seen.append(type(error)))
    runtime.run_in_thread("journal", lambda: write_twice(disk), lambda *told: seen.append(told))
    scheduler.run(1.0)
    assert seen == [ZeroDivisionError]
    runtime.pause()
    scheduler.run(500.0)
    assert disk.fsyncs == 0
    runtime.resume()
    disk.stop_at("fdatasync", skip=1)
    scheduler.run(1000.0)
    assert (disk.fsyncs, machine.crashes) == (1, 1)


# -- the network --


class Peer:
    """One end of the network that writes down what it hears."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        ids: tuple[int, ...] = (1, 2),
        *,
        identity: PeerIdentity | None = None,
        admission: Admission | None = None,
    ) -> None:
        machine = FakeMachine()
        machine.node_id = node_id
        self.runtime = SimRuntime(network.scheduler, machine, network.scheduler.rng(f"life-{node_id}"))
        me = identity or PeerIdentity("c", "", node_id, f"{node_id:032x}")
        self.proved: list[PeerIdentity] = []
        self.transport = SimTransport(
            network,
            self.runtime,
            node_id,
            lambda: me,
            ids,
            admission=lambda: admission or Admission(),
            on_proven=self.proved.append,
        )
        self.node_id = node_id
        self.heard: list[Any] = []
        self.transport.setOnMessageReceivedCallback(lambda _node, message: self.heard.append(message))
        self.transport.setOnNodeConnectedCallback(lambda node: self.heard.append(("up", node.node_id)))
        self.transport.setOnNodeDisconnectedCallback(lambda node: self.heard.append(("down", node.node_id)))
        self.transport.start()

    def send(self, *messages: Any) -> None:
        """Send within one turn."""
        other = PeerNode(3 - self.node_id)
        self.runtime.enter(lambda: [self.transport.send(other, message) for message in messages])

    def take(self) -> list[Any]:
        """Return what was heard since the last time."""
        heard, self.heard = self.heard, []
        return heard


def heartbeat(number: int) -> Heartbeat:
    return Heartbeat(1, 1, 2, number, 0.0)


def new_pair(weather: Weather = INSTANT) -> tuple[Network, Peer, Peer]:
    network = Network(Scheduler(3), weather)
    one, other = Peer(network, 1), Peer(network, 2)
    network.scheduler.run(1000.0)
    assert one.take() == [("up", 2)]
    assert other.take() == [("up", 1)]
    return network, one, other


def test_one_connection_keeps_the_order_and_small_messages_overtake_bulk() -> None:
    network, one, other = new_pair(Weather(delay_ms=(0.1, 30.0), late_chance=0.3))
    bulk = Append(1, 1, 2, 0, 0, 0, False, ())
    one.send(bulk, heartbeat(0))
    for number in range(1, 50):
        one.send(heartbeat(number))
    network.scheduler.run(3000.0)
    assert other.take() == [heartbeat(0), bulk, *map(heartbeat, range(1, 50))]


def test_a_cut_holds_what_is_sent_until_it_is_healed() -> None:
    network, one, other = new_pair()
    network.cut(1, 2)
    one.send(heartbeat(1))
    other.send(AppendReply(1, 2, 1, False, 0, 0, 0, 0))
    network.scheduler.run(4000.0)
    assert other.take() == []
    assert len(one.take()) == 1
    network.heal(1, 2)
    one.send(heartbeat(2))
    network.scheduler.run(5000.0)
    assert other.take() == [heartbeat(1), heartbeat(2)]


def test_a_long_cut_ends_the_connection_and_healing_brings_another() -> None:
    network, one, other = new_pair()
    network.cut_pair(1, 2)
    one.send(heartbeat(1))
    network.scheduler.run(20_000.0)
    assert one.take() == [("down", 2)]
    assert other.take() == [("down", 1)]
    network.heal_all()
    network.scheduler.run(25_000.0)
    assert one.take() == [("up", 2)]
    assert other.take() == [("up", 1)]


def test_a_break_is_heard_by_both_ends_and_both_come_back() -> None:
    network, one, other = new_pair()
    assert network.break_connection(1, 2)
    network.scheduler.run(20_000.0)
    for peer, name in ((one, 2), (other, 1)):
        heard = peer.take()
        assert heard[0] == ("down", name)
        assert heard[-1] == ("up", name)


def test_a_hello_tells_both_ends_who_proved_it_also_when_one_refuses() -> None:
    network = Network(Scheduler(1))
    here = PeerIdentity("c", "a" * 32, 1, f"{1:032x}")
    for cluster_id, up in (("", True), ("b" * 32, False)):
        there = PeerIdentity("c", cluster_id, 2, f"{2:032x}")
        one, other = Peer(network, 1, identity=here), Peer(network, 2, identity=there)
        network.scheduler.run(network.scheduler.now_ms + 2000.0)
        assert (set(one.proved), set(other.proved)) == ({there}, {here})
        assert (("up", 2) in one.heard, ("up", 1) in other.heard) == (up, up)
        for peer in (one, other):
            peer.transport.vanish(silently=False)
            peer.runtime.end()


@pytest.mark.parametrize("way", [(1, 2), (2, 1)])
def test_a_hello_needs_both_directions(way: tuple[int, int]) -> None:
    network = Network(Scheduler(1))
    network.cut(*way)
    one, other = Peer(network, 1), Peer(network, 2)
    network.scheduler.run(3000.0)
    assert (one.proved, other.proved, one.heard, other.heard) == ([], [], [], [])
    network.heal(*way)
    network.scheduler.run(6000.0)
    assert ("up", 2) in one.heard
    assert ("up", 1) in other.heard


def test_a_retired_disk_is_refused_and_another_one_does_not_displace_the_recorded_one() -> None:
    network = Network(Scheduler(1))
    recorded, impostor, retired = (PeerIdentity("c", "", 2, 32 * each) for each in "abc")
    voters, learners = {1: Member("", f"{1:032x}")}, {2: Member("", "")}
    latest = Configuration("d" * 32, voters, learners, (retired.incarnation,))
    one = Peer(network, 1, admission=Admission(latest, latest, 1))
    judged = one.transport.acceptor()._judge
    refusal = judged(retired)
    assert refusal is not None
    assert refusal.reason is RefusalReason.RETIRED
    Peer(network, 2, identity=recorded)
    network.scheduler.run(2000.0)
    assert ("up", 2) in one.heard
    voters[2] = Member("", recorded.incarnation)
    refusal = judged(impostor)
    assert refusal is not None
    assert refusal.reason is RefusalReason.ANOTHER_DISK
    assert judged(recorded) is None


def test_a_dead_process_is_noticed_and_what_it_sent_before_may_arrive() -> None:
    network, one, other = new_pair()
    other.transport.vanish(silently=False)
    other.runtime.end()
    network.scheduler.run(20_000.0)
    assert one.take() == [("down", 2)]


@pytest.mark.parametrize("silently", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_a_connection_that_a_life_ended_before_it_accepted_it_is_noticed(silently: bool, cut: bool) -> None:
    network, one, other = new_pair()
    network.break_connection(1, 2)
    while ("up", 2) not in one.take():
        network.scheduler.run(network.scheduler.now_ms + 0.5)
    assert [connection.key for connection in network.connections_of(other.transport)] == [(1, 2)]
    if cut:
        network.cut_pair(1, 2)
    other.transport.vanish(silently=silently)
    other.runtime.end()
    one.send(heartbeat(1))
    network.scheduler.run(network.scheduler.now_ms + UNACKNOWLEDGED_TIMEOUT_MS)
    assert ("down", 2) in one.take()
    assert network.connections_of(one.transport) == []


def test_chunks_come_twice_and_late_ones_of_old_connections_come_at_all() -> None:
    network, one, other = new_pair(Weather(delay_ms=(1.0, 50.0), twice_chance=0.5, stale_chance=1.0))
    for number in range(200):
        one.send(heartbeat(number))
        if number % 10 == 9:
            network.break_connection(1, 2)
            network.scheduler.run(network.scheduler.now_ms + 400.0)
    network.scheduler.run(30_000.0)
    numbers = [message.commit_index for message in other.take() if isinstance(message, Heartbeat)]
    assert len(numbers) > len(set(numbers))
    assert numbers != sorted(numbers)
    assert network.counters.stale > 0


def test_a_slow_line_takes_its_time_and_lets_small_messages_overtake() -> None:
    network, one, other = new_pair()
    network.slow(1, 2, 1000.0)
    bulk = Append(1, 1, 2, 0, 0, 0, False, ())
    one.send(bulk, bulk, bulk)
    one.send(heartbeat(1))
    network.scheduler.run(network.scheduler.now_ms + 150.0)
    assert other.take() == [bulk, heartbeat(1)]
    network.scheduler.run(network.scheduler.now_ms + 150.0)
    assert other.take() == [bulk, bulk]


# -- a machine --


def new_node(seed: int = 1) -> SimNode:
    scheduler = Scheduler(seed)
    network = Network(scheduler, INSTANT)
    rng = scheduler.rng("config")
    config = build_config(1, [1], rng)
    return SimNode(
        scheduler,
        network,
        Timeline(scheduler),
        config,
        sizes=draw_sizes(rng),
        speed=DiskSpeed(0.1, 0.2, 0.0, 0.0),
    )


def applied_index(node: SimNode) -> int:
    assert node.member is not None
    return node.member.engine.applied_index


def test_a_lone_node_founds_its_cluster_and_keeps_it_over_a_power_cut() -> None:
    node = new_node()
    assert node.start(Start.BOOTSTRAP)
    node.scheduler.run(1000.0)
    before = applied_index(node)
    assert before >= 2
    node.power_cut(Cut.NOTHING)
    assert not node.running
    assert node.formatted
    assert node.start()
    node.scheduler.run(2000.0)
    assert applied_index(node) > before


def test_a_crash_within_a_disk_call_ends_the_life_wherever_that_is() -> None:
    lives_seen = set()
    for calls in range(0, 45, 3):
        node = new_node()
        node.crash_within(calls, power=True)
        node.start(Start.BOOTSTRAP)
        node.scheduler.run(1000.0)
        assert node.crashes == 1
        assert not node.running
        lives_seen.add(node.formatted)
        assert node.start(Start.PLAIN if node.formatted else Start.BOOTSTRAP)
        node.scheduler.run(2000.0)
        assert applied_index(node) >= 2
        assert not node.failures
        assert not node.refusals
        assert not node.escapes
    assert lives_seen == {False, True}


def test_a_refusal_and_a_failure_are_kept_with_their_story() -> None:
    node = new_node()
    stories: list[str] = []
    node.on_story.append(lambda _, what, error: stories.append(f"{what}: {error}"))
    assert not node.start()
    assert node.start(Start.BOOTSTRAP)
    node.scheduler.run(500.0)
    node.disk.fail("fdatasync", 5, path_part="journal")
    assert node.member is not None
    node.member.writer.submit([], lambda: None)
    node.member.engine.make_incarnation_durable(1 << 40, lambda: None)
    node.scheduler.run(1000.0)
    assert not node.running
    assert [story.partition(":")[0] for story in stories] == ["refused", "stopped itself"]
    assert "EIO" in stories[1]
    assert node.disk_troubled


def test_an_exception_while_a_client_is_served_stops_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ClientConnection) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ClientConnection, "proceed", broken)
    node = new_node()
    node.start(Start.BOOTSTRAP)
    node.scheduler.run(1000.0)
    assert node.member is not None
    frontend = node.member.frontend
    assert node.runtime is not None
    node.runtime.enter(frontend.turn.proceed_soon, frontend.new_connection())
    node.scheduler.run(2000.0)
    assert "planted" in str(node.failures)


# -- whole worlds --


def test_a_seed_repeats_itself_and_another_one_is_another() -> None:
    one, again, other = (
        run_seed(seed, span=SHORT, verbose=verbose)
        for seed, verbose in ((11, False), (11, True), (12, False))
    )
    assert one.story == ""
    assert (one.trace, one.events, one.operations, one.bit) == (
        again.trace,
        again.events,
        again.operations,
        again.bit,
    )
    assert one.trace != other.trace


def test_a_seed_is_the_same_in_every_process() -> None:
    script = (
        "import json; from tests.simulation.world import SHORT, run_seed; o = run_seed(13, span=SHORT); "
        "print(json.dumps([o.trace, o.events, o.story]))"
    )
    traces = set()
    for hash_seed in ("0", "1"):
        ran = subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        )
        trace, events, story = json.loads(ran.stdout.splitlines()[-1])
        assert story == ""
        traces.add((trace, events))
    assert len(traces) == 1


def test_a_failing_seed_tells_its_story_its_command_and_its_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: World) -> None:
        self.scheduler.at(3_000.0, self.break_off, "I0", "planted")

    begin = World.__init__

    def init(self: World, *arguments: Any) -> None:
        begin(self, *arguments)
        broken(self)

    monkeypatch.setattr(World, "__init__", init)
    outcome = run_repeatably(14, "crashes", 5)
    assert outcome.story == "I0: planted"
    assert outcome.sim_ms == 3_000.0
    assert outcome.command == "python -m tests.simulation --seed 14 --profile crashes --nodes 5 --timeline"
    assert any("[raft] became leader" in line for line in outcome.timeline)


def test_a_seed_that_ends_in_an_exception_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: World) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(World, "_heal", broken)
    outcome = run_repeatably(14, "crashes", 3, SHORT)
    assert outcome.story.startswith("Traceback")
    # A process of its own sends back an equal span, not the same one.
    assert "--short" in replace(outcome, span=Span(*SHORT)).command
    assert outcome.story.endswith("RuntimeError: planted\n")


def test_a_member_that_stops_itself_without_a_fault_of_its_disk_fails_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = World.__init__

    def init(self: World, *arguments: Any) -> None:
        begin(self, *arguments)
        self.scheduler.at(3_000.0, lambda: self.nodes[1].member.engine.fail(RuntimeError("planted")))  # type: ignore[union-attr]

    monkeypatch.setattr(World, "__init__", init)
    outcome = run_seed(15, "calm")
    assert outcome.story.startswith("stopped itself: node 1: RuntimeError('planted')")


def test_the_command_line_runs_short_seeds_in_processes() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--short",
        "--seeds",
        "1",
        "--profile",
        "calm",
        "--workers",
        "1",
    ]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert "1 seeds in" in ran.stdout
    assert "all held" in ran.stdout


def test_the_command_line_tells_the_pace_of_an_idle_cluster() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--idle", "2"]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("3 idle nodes, 2 simulated s in ")


@pytest.mark.parametrize(
    ("module", "options", "named"),
    [
        ("tests.simulation", "--seeds 0", "argument --seeds: '0'"),
        ("tests.simulation", "--seeds -1", "argument --seeds: '-1'"),
        ("tests.simulation", "--workers 0", "argument --workers: '0'"),
        ("tests.simulation", "--seed 1 --seeds 2", "not allowed with"),
        ("tests.simulation", "--idle 0", "--idle is 0: give a number of simulated seconds above 0"),
        ("tests.simulation", "--timeline", "give --seed too"),
        ("tests.simulation", "--seed 1 --timeline --lines -5", "argument --lines: '-5'"),
        ("tests.simulation.rules", "--workers 0", "argument --workers: '0'"),
        ("tests.simulation.rules", "--seeds 0", "argument --seeds: '0'"),
        ("tests.simulation.rules", "--rule one-vote-per-term --area journal", "not allowed with"),
    ],
)
def test_a_run_of_nothing_never_says_that_all_held(
    module: str,
    options: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [module, *options.split()])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"{module}.__main__").main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert named in printed.err


@pytest.mark.parametrize("seed", [1, 3])
def test_a_majority_is_lost_and_the_one_that_is_left_goes_on_with_everything(seed: int) -> None:
    outcome = run_seed(seed, "forced", 3, SHORT)
    assert outcome.story == ""
    assert outcome.bit["lose_majority"] >= 1


def test_a_forced_node_that_lacks_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = World.whole

    def lacking(world: World) -> list[SimNode]:
        good = whole(world)
        return [node for node in world.members() if node not in good] or good

    monkeypatch.setattr(World, "whole", lacking)
    stories = [run_seed(seed, "forced", 3, SHORT).story for seed in (2, 3, 6, 7)]
    assert any(story.startswith("I2") for story in stories), stories


@pytest.mark.parametrize("seed", range(1, 12))
def test_an_fsync_that_hangs_keeps_its_lane_and_not_the_loop(seed: int) -> None:
    scheduler = Scheduler(seed)
    runtime, machine = new_runtime(scheduler)
    machine.hanging_lane = "journal"
    seen: list[str] = []
    runtime.run_in_thread(
        "journal", lambda: runtime.disk_called("fdatasync"), lambda *_: seen.append("durable")
    )
    runtime.run_in_thread("other", lambda: None, lambda *_: seen.append("other"))
    runtime.call_later(10_000.0, seen.append, "loop")
    scheduler.run(60_000.0)
    runtime.end()
    assert seen == ["other", "loop"]


def test_a_slow_disk_holds_up_the_loop() -> None:
    assert any(run_seed(seed, "disks", 3, SHORT).counts["loop_stalls"] for seed in range(5, 21))


def test_a_seldom_fault_comes_in_its_share_of_the_seeds_and_bites() -> None:
    have = [seed for seed in range(1, 101) if Scheduler(seed).rng("seldom").random() < SELDOM["tear_twice"]]
    assert 5 <= len(have) <= 15
    with_it, without_it = (run_seed(seed, span=SHORT) for seed in (have[0], have[0] + 1))
    assert (with_it.story, with_it.bit.get("tear_twice")) == ("", 1)
    assert (without_it.story, "tear_twice" in without_it.tried) == ("", False)


@pytest.mark.parametrize("fault", ["refuse_segment", "break_second"])
def test_a_disk_that_spoils_what_compaction_goes_by_is_borne(fault: str) -> None:
    outcomes = (run_seed(seed, "compaction") for seed in range(1, 9))
    bitten = next(outcome for outcome in outcomes if outcome.bit.get(fault))
    assert bitten.story == ""


def test_every_fault_is_part_of_the_ordinary_mix() -> None:
    assert set(PROFILES["mix"]) | set(SELDOM) == set(FAULTS)
    assert not set(PROFILES["mix"]) & set(SELDOM)
    assert all(set(weights) <= set(FAULTS) for weights in PROFILES.values())
