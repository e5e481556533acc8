"""setACL and getACL: order of refusals, versions, what a reader sees, and the ACL that events carry."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core import queries
from quorum.core.acl import Grants
from quorum.core.codes import BAD_ARGUMENTS, BAD_VERSION, INVALID_ACL, NO_AUTH, NO_NODE
from quorum.core.snapshot import SnapshotWalk
from tests.unit.core.driver import Client, Driver, chunks_of, decode_stat, dump, load

OPEN = [[31, "world", "anyone"]]
BOB = [["digest", "bob:1"]]
OWNED = [[31, "digest", "bob:1"]]


def ask(client: Client, *command: Any) -> Any:
    return client.one(*command)


def started() -> tuple[Driver, Client]:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"x")
    return driver, client


def test_a_new_acl_raises_its_own_version_only_and_tells_nobody() -> None:
    driver, client = started()
    result = ask(client, 7, "/a", OWNED, 0)
    stat = decode_stat(result.value)
    assert (result.err, result.events, result.zxid) == (0, None, driver.zxid)
    assert (stat.aversion, stat.version, stat.mzxid, stat.cversion) == (1, 0, stat.czxid, 0)
    assert client.one(5, "/a", b"", -1).err == NO_AUTH
    client.identities = BOB
    assert client.one(7, "/a", None, 1).err == 0
    client.identities = None
    assert client.put("/a", b"").aversion == 2
    assert len(driver.machine.tree.acls) == 2, "what no node has is forgotten"
    driver.machine.check_invariants()


@pytest.mark.parametrize(
    ("path", "acl", "version", "err"),
    [
        ("bad", [], 0, BAD_ARGUMENTS),
        ("", OPEN, 0, BAD_ARGUMENTS),
        ("/a//b", [], 0, BAD_ARGUMENTS),
        ("/missing", [], 0, INVALID_ACL),
        ("/missing", OPEN, 0, NO_NODE),
        ("/owned", [], 0, INVALID_ACL),
        ("/owned", OPEN, 9, NO_AUTH),
        ("/a", OPEN, 9, BAD_VERSION),
        ("/a", [[31, "auth", ""]], 0, INVALID_ACL),
        ("/a", [[31, "super", "x"]], 0, INVALID_ACL),
        ("/zookeeper/config", OPEN, -1, NO_AUTH),
        ("/a", [[99, "world", "anyone"]], 0, 0),
        ("/", OPEN, 0, 0),
    ],
)
def test_refusals_come_in_zookeepers_order(path: str, acl: Any, version: int, err: int) -> None:
    driver, client = started()
    client.make("/owned", acl=[[31, "digest", "bob:1"]])
    before = dump(driver.machine)["nodes"]
    zxid = driver.zxid
    result = ask(client, 7, path, acl, version)
    assert (result.err, result.zxid) == (err, zxid + 1)
    assert err == 0 or dump(driver.machine)["nodes"] == before


def test_the_acl_is_shown_to_readers_without_digests_and_whole_to_administrators() -> None:
    driver, client = started()
    machine = driver.machine
    client.make("/mixed", acl=[[16, "digest", "bob:1"], [1, "world", "anyone"], [2, "ip", "10.0.0.1"]])
    client.make("/closed", acl=[[31, "digest", "bob:1"]])
    seen = queries.get_acl(machine, "/mixed", None)
    assert not isinstance(seen, int)
    assert seen[0] == ((16, "digest", "bob:x"), (1, "world", "anyone"), (2, "ip", "10.0.0.1"))
    whole = queries.get_acl(machine, "/mixed", BOB)
    assert not isinstance(whole, int)
    assert whole[0][0] == (16, "digest", "bob:1")
    assert queries.get_acl(machine, "/closed", None) == NO_AUTH
    assert queries.get_acl(machine, "/missing", None) == NO_NODE
    root = queries.get_acl(machine, "", None)
    assert not isinstance(root, int)
    assert root[0] == ((31, "world", "anyone"),)


def test_an_event_carries_the_acl_of_its_time_where_not_everyone_may_read() -> None:
    _, client = started()
    client.identities = BOB

    def events(*command: Any) -> list[tuple[int, str, bool]]:
        """(type, path, whether it is for bob alone) of each event of a write."""
        told = []
        for event in client.one(*command).events or []:
            grants = event[2] if len(event) == 3 else None
            assert grants is None or isinstance(grants, Grants)
            assert grants is None or (grants.permit(1, BOB), grants.permit(31, None)) == (True, False)
            told.append((event[0], str(event[1]), grants is not None))
        return told

    assert events(1, "/a/b", b"", OWNED, 0) == [(1, "/a/b", True), (4, "/a", False)]
    assert events(5, "/a/b", b"", -1) == [(3, "/a/b", True)]
    client.one(7, "/a", OWNED, -1)
    assert events(2, "/a/b", -1) == [(2, "/a/b", True), (4, "/a", True)]
    client.one(7, "/a", [[1, "world", "anyone"], [31, "digest", "bob:1"]], -1)
    assert events(5, "/a", b"", -1) == [(3, "/a", False)]


def test_a_snapshot_under_way_keeps_the_acl_of_its_start() -> None:
    driver, client = started()
    client.make("/owned", acl=OWNED)
    before = dump(driver.machine)
    walk = SnapshotWalk(driver.machine)
    client.one(7, "/a", [[1, "ip", "10.0.0.1"]], -1)
    client.one(7, "/", [[31, "world", "anyone"], [1, "ip", "10.0.0.1"]], -1)
    client.identities = BOB
    client.one(7, "/owned", None, -1)
    assert dump(load(chunks_of(walk))) == before


def test_descendants_and_ephemerals_are_counted_as_zookeeper_does() -> None:
    driver, client = started()
    machine = driver.machine
    client.make("/a/b")
    client.make("/a/b/c")
    client.make("/a/e", flags=1)
    client.make("/ax", flags=1)
    assert queries.count_descendants(machine, "/a") == 3
    assert queries.count_descendants(machine, "/a/e") == 0
    assert queries.count_descendants(machine, "/") == 8
    assert queries.count_descendants(machine, "") == 9
    assert queries.count_descendants(machine, "/a/") == NO_NODE
    client.make("/p", acl=OWNED)
    assert queries.count_descendants(machine, "/p") == NO_AUTH
    found = {prefix: sorted(queries.ephemerals_of(machine, client.session_id, prefix)) for prefix in PREFIXES}
    assert found == PREFIXES
    assert queries.ephemerals_of(machine, 999, "/") == []


PREFIXES = {
    "": ["/a/e", "/ax"],
    "/": ["/a/e", "/ax"],
    " / ": ["/a/e", "/ax"],
    "/a": ["/a/e", "/ax"],
    "/a/": ["/a/e"],
    "/b": [],
    "a": [],
}
