"""Nothing that a command, a run or a proposal holds can raise, and garbage never changes a node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorum.core.codes import BAD_ARGUMENTS, UNIMPLEMENTED
from tests.unit.core.driver import INCARNATION, NODE_ID, Client, Driver

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from(["/", "/a", "/a/b", "/e", "/zookeeper/config", "world", "anyone", "\ud800", "/\ud800"]),
    st.sampled_from([0, 1, 2, 3, -1, 5, 13, 14, 15, 9, -10, -11, -100, 31]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.integers(0, 20) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
OPCODES = st.sampled_from([1, 2, 5, 7, 9, 13, 14, 15, 19, 21, -10, -11, -100, 4, 0, 100])
COMMANDS = st.one_of(VALUES, st.builds(lambda op, rest: [op, *rest], OPCODES, st.lists(VALUES, max_size=5)))
TIDY_PATHS = st.sampled_from(["/", "/a", "/a/b", "/a/c", "/e", "/e/x", "", "x", "/\ud800"])
NEARLY = st.one_of(
    st.tuples(st.sampled_from([1, 15, 19]), TIDY_PATHS, SCALARS, VALUES, st.integers(-1, 6)).map(list),
    st.tuples(st.just(21), TIDY_PATHS, SCALARS, VALUES, st.integers(4, 7), SCALARS).map(list),
    st.tuples(st.just(7), TIDY_PATHS, VALUES, SCALARS).map(list),
    st.tuples(st.just(5), TIDY_PATHS, SCALARS, SCALARS).map(list),
    st.tuples(st.sampled_from([2, 13]), TIDY_PATHS, SCALARS).map(list),
    st.tuples(st.just(14), st.lists(COMMANDS, max_size=4)).map(list),
)


def started() -> tuple[Driver, Client]:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    client.make("/a/b", b"x")
    client.make("/e", flags=1)
    return driver, client


@settings(max_examples=150, deadline=None)
@given(commands=st.lists(COMMANDS | NEARLY, max_size=8), identities=VALUES)
def test_commands_of_any_content_have_results(commands: list[Any], identities: Any) -> None:
    driver, client = started()
    run = [client.session_id, client.nonce, identities, commands]
    [outcome] = driver.batch(run)
    assert len(outcome.results) == len(commands)
    for result in outcome.results:
        assert type(result.err) is int
        assert result.err <= 0
        assert result.zxid <= driver.zxid
    driver.machine.check_invariants()


@settings(max_examples=60, deadline=None)
@given(
    runs=VALUES | st.lists(VALUES, max_size=3) | st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES).map(list))
)
def test_runs_of_any_shape_have_outcomes(runs: Any) -> None:
    driver, _ = started()
    outcomes = driver.apply("batch", NODE_ID, INCARNATION, driver.batches[NODE_ID] + 1, runs)
    assert len(outcomes) == (len(runs) if type(runs) is list else 0)
    driver.machine.check_invariants()


@settings(max_examples=100, deadline=None)
@given(arguments=st.lists(VALUES, min_size=4, max_size=4), proposals=VALUES, payload=st.binary(max_size=20))
def test_other_entries_of_any_content_are_applied(
    arguments: list[Any], proposals: Any, payload: bytes
) -> None:
    driver, _ = started()
    driver.apply("batch", *arguments)
    driver.apply("register", *arguments[:2])
    driver.apply("control", proposals)
    driver.apply("configuration", payload)
    driver.machine.check_invariants()


@pytest.mark.parametrize("opcode", [1, 2, 5, 7, 15, 19, 21])
def test_a_malformed_write_is_a_bad_argument_and_takes_a_zxid(opcode: int) -> None:
    driver, client = started()
    for rest in (
        [],
        [None],
        ["/a"],
        ["/a", 1, 2, 3, 4, 5, 6],
        [b"/a", b"", 0],
        [1, 2, 3, 4],
        [b"/a", None, None, 0],
    ):
        zxid = driver.zxid
        result = client.one(opcode, *rest)
        assert (result.err, result.zxid, driver.zxid) == (BAD_ARGUMENTS, zxid + 1, zxid + 1)


@pytest.mark.parametrize(
    "command", [[4, "/a", False], [13, "/a", 0], [8], [], None, "x", 5, {}, [[]], [None], ["1"]]
)
def test_an_unknown_command_is_unimplemented_and_takes_none(command: Any) -> None:
    driver, client = started()
    zxid = driver.zxid
    [result] = client.run(command)
    assert (result.err, result.zxid, driver.zxid) == (UNIMPLEMENTED, zxid, zxid)


def test_things_that_only_look_like_commands_are_refused() -> None:
    driver, client = started()
    client.run({0: 14, 5: 1}, {0: 14, 1: []}, b"\x05abc", [True, "/t", b"", None, 0], [5.0, "/a", b"", -1])
    driver.machine.check_invariants()
