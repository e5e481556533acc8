"""The two digests: what moves them, and that nothing else does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorum.core.machine import StateMachine
from tests.unit.core.driver import CONFIGURATION, SESSION_KEY, Client, Driver, dump, replay

REPOSITORY = Path(__file__).resolve().parents[3]


def started() -> tuple[Driver, Client]:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"a")
    client.make("/b", None)
    return driver, client


def digests_after(change: Callable[[Client], object]) -> tuple[bytes, bytes]:
    driver, client = started()
    change(client)
    return driver.machine.state_digest, driver.machine.apply_digest


NOTHING: list[Callable[[Client], object]] = [
    lambda client: client.driver.apply("noop"),
    lambda client: client.one(9, "/"),
    lambda client: client.one(5, "/a", b"x", 99),
    lambda client: client.multi([5, "/a", b"x", -1], [13, "/a", 7]),
    lambda client: client.multi([13, "/a", 0]),
    lambda client: client.driver.connect(),
    lambda client: client.one(-100),
    lambda client: client.one(-11),
    lambda client: client.driver.register(2, 1),
    lambda client: client.driver.apply("batch", 9, 9, 9, []),
    lambda client: client.driver.control(["expire", 1, 1, 0]),
    lambda client: client.driver.apply("configuration", CONFIGURATION + b" "),
    lambda client: client.elsewhere(1, 1000).one(-100),
    lambda client: client.elsewhere(1, 1001).one(-100),
    lambda client: client.driver.register(2, 2),
    lambda client: client.driver.register(3, 1),
    lambda client: client.driver.batch([0, 8, None, [[-10, 30_000]]]),
    lambda client: client.driver.batch(),
    lambda client: client.run(),
    lambda client: client.elsewhere(1, 1000).one(5, "/a", b"x", -1),
]


@pytest.mark.parametrize("change", NOTHING)
def test_an_entry_that_changes_no_node_leaves_the_state_digest(change: Callable[[Client], object]) -> None:
    driver, client = started()
    state, apply = driver.machine.state_digest, driver.machine.apply_digest
    change(client)
    assert driver.machine.state_digest == state
    assert driver.machine.apply_digest != apply


CHANGES: list[Callable[[Client], object]] = [
    *NOTHING,
    lambda client: client.one(5, "/a", b"x", -1),
    lambda client: client.one(5, "/a", b"", -1),
    lambda client: client.one(5, "/a", None, -1),
    lambda client: client.one(5, "/b", None, -1),
    lambda client: client.one(1, "/c", b"", None, 0),
    lambda client: client.one(1, "/c", b"", None, 1),
    lambda client: client.one(1, "/c", None, None, 0),
    lambda client: client.one(1, "/d", b"", None, 0),
    lambda client: client.one(1, "/c", b"", [[1, "world", "anyone"]], 0),
    lambda client: client.one(1, "/c", b"", [[3, "world", "anyone"]], 0),
    lambda client: client.one(2, "/a", -1),
    lambda client: client.one(2, "/b", -1),
    lambda client: client.multi([2, "/a", -1], [2, "/b", -1]),
    lambda client: client.run([2, "/a", -1], [2, "/b", -1]),
    lambda client: client.multi([2, "/b", -1], [2, "/a", -1]),
    lambda client: client.one(2, "/missing", -1),
    lambda client: client.run([9, "/"], [9, "/"]),
    lambda client: client.driver.connect(29_999),
]


def test_different_entries_give_different_digests() -> None:
    digests = [digests_after(change) for change in CHANGES]
    # a void batch is as good as no command at all
    assert digests[9] == digests[0]
    assert len(set(digests)) == len(CHANGES) - 1


def test_different_changes_give_different_state_digests() -> None:
    changes = CHANGES[len(NOTHING) : len(NOTHING) + 15]
    digests = [digests_after(change)[0] for change in changes]
    # the same two deletions in a multi and one by one are the same changes of nodes
    assert len(set(digests)) == len(changes) - 1
    assert digests[12] == digests[13]


def test_the_number_of_an_acl_does_not_count() -> None:
    def twice(client: Client, first: Any) -> None:
        client.one(1, "/t", b"", first, 0)
        client.one(2, "/t", -1)

    def state_without(first: Any) -> bytes:
        driver, client = started()
        twice(client, first)
        before = driver.machine.state_digest
        client.one(1, "/c", b"", [[7, "world", "anyone"]], 0)
        assert driver.machine.state_digest != before
        return driver.machine.tree.get("/c")  # type: ignore[return-value]

    plain, shifted = state_without(None), state_without([[9, "world", "anyone"]])
    assert plain[68:72] != shifted[68:72], "the numbers differ"


def test_the_founding_is_part_of_the_chains() -> None:
    one, two = StateMachine(), StateMachine()
    one.apply_found(1, 1, 1, "c1", SESSION_KEY, CONFIGURATION)
    two.apply_found(1, 1, 1, "c1", SESSION_KEY[::-1], CONFIGURATION)
    assert one.state_digest == two.state_digest != bytes(16)
    assert one.apply_digest != two.apply_digest


def test_equal_entries_give_equal_machines() -> None:
    driver, client = started()
    for change in CHANGES:
        change(client)
    other = StateMachine()
    for entry in driver.entries:
        replay(other, entry)
    assert dump(other) == dump(driver.machine)


STORY = """
from tests.unit.core.driver import Driver
driver = Driver(nodes=(1, 2))
clients = [driver.connect(node_id=1 + n % 2) for n in range(4)]
for n, client in enumerate(clients):
    client.identities = [["digest", f"user{n}:x"], ["ip", "10.0.0.1"]]
    client.make(f"/top{n}", b"x" * n, acl=[[31, "auth", ""], [1, "ip", "10.0.0.0/8"], [1, "world", "anyone"]])
    for name in "qwertyuiop":
        client.make(f"/top{n}/{name}", flags=1)
    client.multi([2, f"/top{n}/q", -1], [1, f"/top{n}/q", b"", None, 3], [13, "/missing", 0])
    client.one(-11)
driver.apply("configuration", b'{"voters": {"3": {"address": "a:1"}, "1": {"address": "b:2"}}}')
print(driver.machine.state_digest.hex(), driver.machine.apply_digest.hex())
"""


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", STORY],
            check=True,
            capture_output=True,
            cwd=REPOSITORY,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)},
            text=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().split()[0]) == 32
