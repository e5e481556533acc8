"""No acknowledged write is lost when the leader, any node or all nodes are killed at random instants.

Three writer processes keep 64 writes each in flight and record every acknowledgement outside the nodes. The
run counts only if the kills left writes with unknown outcome. A failing run prints its seed;
NOTHING_LOST_SEED=<seed> repeats the same choices.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.nodes import QuorateNodes, System
from tests.support.recorded_writes import Final, History, check
from tests.support.writer_fleet import NO_NODE, WriterFleet

#: of a run of `make test` and of `make test-long`
KILLS = [
    ["leader"] * 4 + ["any"] * 3 + ["all"] * 3,
    pytest.param(["leader"] * 12 + ["any"] * 9 + ["all"] * 9, marks=pytest.mark.long),
]


def say(text: str) -> None:
    """Put a line into the output that pytest shows for a failed test."""
    sys.stdout.write(text + "\n")


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("NOTHING_LOST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    say(f"repeat with NOTHING_LOST_SEED={chosen}")
    return chosen


@pytest.fixture
def writers(nodes: System, tmp_path: Path, seed: int) -> Iterator[WriterFleet]:
    def all_run() -> None:
        for node_id in nodes.node_ids:
            if not nodes.running(node_id):
                pytest.fail(f"node {node_id} ended by itself")

    started = WriterFleet(nodes, tmp_path, seed, check_nodes=all_run)
    try:
        yield started
    finally:
        started.close()


@pytest.mark.parametrize("kinds", KILLS, ids=len)
def test_kills_lose_nothing(nodes: System, writers: WriterFleet, seed: int, kinds: list[str]) -> None:
    choose = random.Random(seed)
    kills = choose.sample(kinds, len(kinds))
    for number, kind in enumerate(kills):
        # Every fourth kill does not wait for acknowledgements: it meets nodes that are still coming back.
        if number % 4 != 3:
            writers.wait_for_progress(choose.randrange(20_000, 1_000_000))
        match kind:
            case "leader":
                victims = [nodes.leader()]
            case "any":
                victims = [choose.choice(list(nodes.node_ids))]
            case _:
                victims = list(nodes.node_ids)
        say(f"kill {number + 1}: {kind}: nodes {victims}")
        for victim in victims:
            nodes.kill(victim)
        for victim in victims:
            nodes.start_node(victim)
    writers.wait_for_progress(100_000)
    history = writers.finish()
    nodes.wait_ready()
    say(f"{history.acknowledged} acknowledged, {history.unknown} unknown, {len(history.paths)} paths")
    assert history.unknown > 0, (
        "the kills did not bite: no write has an unknown outcome, so this run does not count"
    )
    assert history.acknowledged > 1000, "too few acknowledged writes for this run to count"
    violations = check(history, writers.final_values(history))
    assert not violations, "\n".join(violations[:20])
    if isinstance(nodes, QuorateNodes):
        nodes.one_digest()


RECORD = [
    {"type": "invoke", "op": 1, "kind": "create", "path": "/w/a", "value": "1"},
    {"type": "invoke", "op": 2, "kind": "set", "path": "/w/a", "value": "2"},
    {"type": "invoke", "op": 3, "kind": "create", "path": "/w/b", "value": "3"},
    {"type": "ok", "op": 1, "version": 0, "zxid": 10},
    {"type": "ok", "op": 2, "version": 1, "zxid": 11},
    {"type": "unknown", "op": 3},
    {"type": "invoke", "op": 4, "kind": "set", "path": "/w/a", "value": "4"},
    {"type": "unknown", "op": 4},
    {"type": "invoke", "op": 5, "kind": "set", "path": "/w/b", "value": "5"},
    {"type": "fail", "op": 5, "error": NO_NODE},
]
GOOD = {"/w/a": Final("2", 1, 10, 11)}


def checked(
    tmp_path: Path, *finals: dict[str, Final], lines: list[dict[str, object]] | None = None
) -> list[str]:
    record = tmp_path / "record.jsonl"
    record.write_text("".join(json.dumps(line) + "\n" for line in lines or RECORD))
    return check(History.read([record]), {f"node {n}": final for n, final in enumerate(finals, start=1)})


def test_checker_accepts_every_allowed_outcome(tmp_path: Path) -> None:
    unknown_applied = {"/w/a": Final("4", 2, 10, 12), "/w/b": Final("3", 0, 13, 13)}
    assert checked(tmp_path, GOOD, GOOD) == []
    assert checked(tmp_path, unknown_applied, unknown_applied) == []


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({}, "gone"),
        ({"/w/a": Final("1", 0, 10, 10)}, "version 0 < 1"),
        ({"/w/a": replace(GOOD["/w/a"], mzxid=12)}, "acknowledged to operation 2"),
        ({"/w/a": replace(GOOD["/w/a"], czxid=9)}, "czxid 9"),
        ({"/w/a": replace(GOOD["/w/a"], value="9")}, "nobody wrote"),
        ({"/w/a": Final("4", 3, 10, 13)}, "counted twice"),
        ({"/w/a": Final("2", 2, 10, 13)}, "acknowledged as older"),
        (GOOD | {"/w/b": Final("5", 1, 13, 14)}, "which failed"),
        (GOOD | {"/w/c": Final("3", 0, 13, 13)}, "nobody wrote it"),
    ],
)
def test_checker_finds_a_planted_violation(tmp_path: Path, planted: dict[str, Final], said: str) -> None:
    assert any(said in line for line in checked(tmp_path, planted, planted))


def test_checker_finds_nodes_that_differ(tmp_path: Path) -> None:
    other = {"/w/a": Final("4", 2, 10, 12)}
    assert any("the nodes differ" in line for line in checked(tmp_path, GOOD, other))


def test_checker_finds_versions_that_do_not_rise(tmp_path: Path) -> None:
    twice: list[dict[str, object]] = [dict(line) for line in RECORD]
    twice[4] = {"type": "ok", "op": 2, "version": 0, "zxid": 11}
    assert any("after version 0" in line for line in checked(tmp_path, GOOD, lines=twice))


def test_checker_finds_a_zxid_given_twice(tmp_path: Path) -> None:
    twice: list[dict[str, object]] = [dict(line) for line in RECORD]
    twice[5] = {"type": "ok", "op": 3, "version": 0, "zxid": 11}
    final = GOOD | {"/w/b": Final("3", 0, 11, 11)}
    assert any("was also given to" in line for line in checked(tmp_path, final, lines=twice))
