"""Curator's recipes, unchanged, on three nodes, with the Raft leader killed while all of them work.

One Java program, `java/CuratorRecipes.java`, runs the recipes at the same time, with one participant at every
node, and says what each participant saw; here it is decided whether that is right. The same test passes
against a real ZooKeeper (TESTED_SYSTEM=zookeeper). Source: Curator 5.9, its recipes' documentation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_kazoo_recipes import kill_leader
from tests.support.java import JavaProgram, java_command
from tests.support.nodes import System

PROGRAM = Path(__file__).with_name("java") / "CuratorRecipes.java"
DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def story(shared_nodes: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """What the participants saw, from the start to the end, with the Raft leader killed once."""
    hosts = [shared_nodes.hosts_from(node_id) for node_id in shared_nodes.node_ids]
    with JavaProgram(java_command(PROGRAM, *hosts), tmp_path_factory.mktemp("curator")) as program:
        program.wait_for("midway", DEADLINE_S)
        kill_leader(shared_nodes)
        program.say("killed")
        program.wait_for("end", DEADLINE_S)
        assert program.wait_end(DEADLINE_S) == 0
        yield program


def overlaps(intervals: list[tuple[int, int, int]]) -> list[tuple[Any, Any]]:
    """Neighbours of (from, to, who) that overlap, in order of time."""
    ordered = sorted(intervals)
    return [(one, two) for one, two in itertools.pairwise(ordered) if two[0] < one[1]]


def test_the_kill_was_felt(story: JavaProgram) -> None:
    """A participant lost its connection, or the run says nothing about a failure."""
    assert sum(story.wait_for("end", DEADLINE_S)["losses"].values()) >= 1


def test_one_participant_is_inside_a_mutex(story: JavaProgram) -> None:
    inside = [(line["from"], line["to"], line["client"]) for line in story.all("mutex")]
    assert len(inside) >= 30
    assert {client for _, _, client in inside} == {0, 1, 2}
    assert overlaps(inside) == []


def test_one_participant_leads_and_each_gets_its_turn(story: JavaProgram) -> None:
    started: dict[int, int] = {}
    led: list[tuple[int, int, int]] = []
    for line in sorted(story.all("leads") + story.all("follows"), key=lambda line: int(line["at"])):
        if line["event"] == "leads":
            started[line["client"]] = line["at"]
        elif line["client"] in started:
            led.append((started.pop(line["client"]), line["at"], line["client"]))
    assert started == {}
    assert overlaps(led) == []
    assert sorted(line["client"] for line in story.all("elected")) == [0, 1, 2]


def test_a_shared_count_counts_every_addition_once(story: JavaProgram) -> None:
    count = story.wait_for("count", DEADLINE_S)
    assert count["added"] >= 20
    assert count["added"] <= count["total"] <= count["added"] + count["unknown"]
    assert count["seen"] == [count["total"]] * 3


def test_caches_hold_what_the_tree_holds(story: JavaProgram) -> None:
    caches = story.all("cache")
    assert [line["kind"] for line in caches] == ["CuratorCache"] * 3 + ["TreeCache"]
    for line in caches:
        assert len(line["tree"]) > 30
        assert line["seen"] == line["tree"], f"{line['kind']} of client {line['client']}"


def test_a_barrier_holds_all_and_lets_all_go(story: JavaProgram) -> None:
    assert story.all("barrier") == [{"event": "barrier", "early": 0, "released": 3}]


def test_a_persistent_node_outlives_its_session(story: JavaProgram) -> None:
    node = story.wait_for("persistent", DEADLINE_S)
    assert node["resumed"], "the session was reached with its id and password"
    assert node["before"] == node["killed"] != node["after"] == node["session"]
    assert node["data"] == "here"
