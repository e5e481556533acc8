"""Access control: valid ACLs, who may do what, the table."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core import queries
from quorum.core.acl import (
    ACL_ENTRIES_MAX,
    SHORT_ENTRIES_MAX,
    SHORT_GRANTS_MAX,
    AclTable,
    Grants,
    parse_network,
    resolve_acl,
)
from quorum.core.codes import BAD_ARGUMENTS, INVALID_ACL, NO_AUTH
from tests.unit.core.driver import OPEN_ACL, Driver

ALICE = [["ip", "10.1.2.3"], ["digest", "alice:hash"]]
SUPER = [["super", "whoever"]]


@pytest.mark.parametrize(
    ("requested", "identities", "stored"),
    [
        (None, None, ((31, "world", "anyone"),)),
        (OPEN_ACL, None, ((31, "world", "anyone"),)),
        ([[1, "world", "anyone"]], None, ((1, "world", "anyone"),)),
        ([[31, "digest", "bob:x"]], None, ((31, "digest", "bob:x"),)),
        ([[31, "digest", ":x"]], None, ((31, "digest", ":x"),)),
        ([[31, "digest", "a:b:"]], None, ((31, "digest", "a:b:"),)),
        ([[31, "ip", "10.0.0.0/8"]], None, ((31, "ip", "10.0.0.0/8"),)),
        ([[31, "ip", "fe80::1/64"]], None, ((31, "ip", "fe80::1/64"),)),
        ([[7, "auth", ""]], ALICE, ((7, "digest", "alice:hash"),)),
        ([[1, "world", "anyone"], [1, "world", "anyone"]], None, ((1, "world", "anyone"),)),
        ([[-1, "world", "anyone"]], None, ((-1, "world", "anyone"),)),
        ([], None, INVALID_ACL),
        ([[31, "world", "someone"]], None, INVALID_ACL),
        ([[31, "auth", ""]], None, INVALID_ACL),
        ([[31, "auth", ""]], [["ip", "10.1.2.3"]], INVALID_ACL),
        ([[31, "auth", ""]], SUPER, INVALID_ACL),
        (
            [[31, "auth", ""]],
            [["ip", "10.1.2.3"], ["x509", "CN=a"], ["super", ""], ["sasl", "a"]],
            ((31, "x509", "CN=a"), (31, "sasl", "a")),
        ),
        ([[1, "sasl", "alice/host@REALM"]], None, ((1, "sasl", "alice/host@REALM"),)),
        ([[1, "sasl", "alice"]], None, ((1, "sasl", "alice"),)),
        ([[1, "sasl", ""]], None, INVALID_ACL),
        ([[1, "sasl", "a@b@c"]], None, INVALID_ACL),
        ([[1, "x509", r"CN=a\,b+UID=7,O=x y"]], None, ((1, "x509", r"CN=a\,b+UID=7,O=x y"),)),
        ([[1, "x509", "alice"]], None, INVALID_ACL),
        ([[1, "x509", "CN=a,"]], None, INVALID_ACL),
        ([[1, "x509", ""]], None, INVALID_ACL),
        ([[31, "digest", "bob"]], None, INVALID_ACL),
        ([[31, "digest", "bob:"]], None, INVALID_ACL),
        ([[31, "digest", "a:b:c"]], None, INVALID_ACL),
        ([[31, "digest", ""]], None, INVALID_ACL),
        ([[31, "digest", "a:\ud800"]], None, INVALID_ACL),
        ([[31, "super", "x"]], None, INVALID_ACL),
        ([[31, "unknown", "x"]], None, INVALID_ACL),
        ([[31, "ip", "10.0.0.0/33"]], None, INVALID_ACL),
        ([[31, "ip", "10.0.0.256"]], None, INVALID_ACL),
        ([[31, "ip", "10.0.0"]], None, INVALID_ACL),
        ([[31, "ip", "10.0.0.1/"]], None, INVALID_ACL),
        ([[31, "ip", "fe80::1/129"]], None, INVALID_ACL),
        ([[31, "ip", "fe80:::1"]], None, INVALID_ACL),
        ([[31, "world", "anyone"], [31, "nobody", "x"]], None, INVALID_ACL),
        ("open", None, BAD_ARGUMENTS),
        ([[31, "world"]], None, BAD_ARGUMENTS),
        ([["31", "world", "anyone"]], None, BAD_ARGUMENTS),
        ([[2**31, "world", "anyone"]], None, BAD_ARGUMENTS),
        ([[31, b"world", "anyone"]], None, BAD_ARGUMENTS),
        ([None], None, BAD_ARGUMENTS),
    ],
)
def test_what_an_acl_is_stored_as(requested: Any, identities: Any, stored: Any) -> None:
    assert resolve_acl(requested, identities) == stored


@pytest.mark.parametrize(
    ("entry", "identities", "permitted"),
    [
        ((2, "world", "anyone"), None, True),
        ((1, "world", "anyone"), None, False),
        ((1, "world", "anyone"), SUPER, True),
        ((2, "digest", "alice:hash"), ALICE, True),
        ((2, "digest", "alice:hash"), None, False),
        ((2, "digest", "bob:hash"), ALICE, False),
        ((2, "sasl", "alice"), [["sasl", "alice"]], True),
        ((2, "sasl", "alice"), [["sasl", "super"]], False),
        ((2, "sasl", "CN=alice"), [["x509", "CN=alice"]], False),
        ((2, "ip", "10.1.0.0/16"), ALICE, True),
        ((2, "ip", "10.1.2.3"), ALICE, True),
        ((2, "ip", "10.2.0.0/16"), ALICE, False),
        ((2, "ip", "0.0.0.0/0"), ALICE, True),
        ((2, "ip", "fe80::/16"), ALICE, False),
        ((2, "ip", "fe80::/16"), [["ip", "fe80::7"]], True),
        ((2, "ip", "10.0.0.0/8"), [["ip", "somewhere"]], False),
        ((2, "ip", "10.0.0.0/8"), [["digest", "10.0.0.1"]], False),
        ((2, "digest", "alice:hash"), "digest", False),
        ((2, "digest", "alice:hash"), [None, ["digest"], [1, 2], ["digest", 3]], False),
    ],
)
def test_what_an_entry_permits(entry: Any, identities: Any, permitted: bool) -> None:
    assert Grants((entry,)).permit(2, identities) is permitted


def test_entries_add_up_and_any_of_several_permissions_suffices() -> None:
    grants = Grants(
        (
            (1, "digest", "alice:hash"),
            (2, "digest", "alice:hash"),
            (4, "ip", "10.1.0.0/16"),
            (8, "ip", "10.1.0.0/16"),
            (16, "ip", "10.0.0.0/8"),
            (4, "world", "anyone"),
            (8, "world", "anyone"),
        )
    )
    alice, near, far = [["digest", "alice:hash"]], [["ip", "10.1.9.9"]], [["ip", "10.2.0.1"]]
    assert [grants.permit(1 << bit, alice) for bit in range(5)] == [True, True, True, True, False]
    assert [grants.permit(1 << bit, near) for bit in range(5)] == [False, False, True, True, True]
    assert [grants.permit(1 << bit, far) for bit in range(5)] == [False, False, True, True, True]
    assert [grants.permit(1 << bit, None) for bit in range(5)] == [False, False, True, True, False]
    assert grants.permit(3, [*far, *alice])
    assert not grants.permit(3, [*far, *near])


def test_a_list_is_bounded_also_once_auth_was_replaced() -> None:
    networks = [[1, "ip", f"10.{number // 250}.{number % 250}.0/24"] for number in range(ACL_ENTRIES_MAX + 1)]
    assert len(resolve_acl(networks[1:], None)) == ACL_ENTRIES_MAX  # type: ignore[arg-type]  # no error code
    assert resolve_acl(networks, None) == INVALID_ACL
    own = [["digest", f"user{number}:hash"] for number in range(32)]
    entries = [[perms, "auth", ""] for perms in range(1, 32)]
    assert len(resolve_acl(entries, own)) == 31 * 32  # type: ignore[arg-type]  # no error code
    assert resolve_acl([*entries, [-1, "auth", ""]], own) == INVALID_ACL


@pytest.mark.parametrize(
    "rest",
    [
        (),
        ((2, "ip", "10.0.0.0/8"),),
        tuple((2, "digest", f"user{number}:hash") for number in range(SHORT_ENTRIES_MAX)),
    ],
    ids=["short", "with a network", "long"],
)
def test_what_a_number_grants_is_what_its_acl_is_now(rest: tuple[tuple[int, str, str], ...]) -> None:
    table = AclTable()
    number = table.acquire(((1, "digest", "a:b"), *rest))
    assert table.permits(number, 1, [["digest", "a:b"]])
    table.release(number)
    table.add(number, ((1, "digest", "c:d"), *rest))
    assert not table.permits(number, 1, [["digest", "a:b"]])
    assert table.permits(number, 1, [["digest", "c:d"]])


@pytest.mark.parametrize(
    ("entries", "rest", "kept"),
    [
        (SHORT_ENTRIES_MAX, (), False),
        (SHORT_ENTRIES_MAX + 1, (), True),
        (1, ((1, "ip", "10.0.0.0/8"),), True),
    ],
)
def test_what_a_number_grants_is_kept_or_read_again(
    entries: int, rest: tuple[tuple[int, str, str], ...], kept: bool
) -> None:
    """Short lists would take more memory as read than as stored, and are soon read again."""
    table = AclTable()
    numbers = [
        table.acquire((*((1, "digest", f"user{owner}:{entry}") for entry in range(entries)), *rest))
        for owner in range(SHORT_GRANTS_MAX + 2)
    ]
    for _ in range(2):
        for owner, number in enumerate(numbers):
            assert table.permits(number, 1, [["digest", f"user{owner}:0"]])
            assert not table.permits(number, 1, [["digest", f"user{owner + 1}:0"]])
    first = table.grants(numbers[0])
    assert table.grants(numbers[0]) is first, "kept as read"
    for number in numbers[1:]:
        table.grants(number)
    assert (table.grants(numbers[0]) is first) is kept


def test_a_network_is_its_prefix() -> None:
    assert parse_network("10.1.2.3/8") == (10 << 24, 32, 8)
    assert parse_network("1.2.3.4") == (0x01020304, 32, 32)
    assert parse_network("::1") == (1, 128, 128)
    assert parse_network("1.2.3.4/x") is None


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        (4, [1, "/n/new", b"", None, 0]),
        (4, [15, "/n/new", b"", None, 0]),
        (8, [2, "/n/old", -1]),
        (2, [5, "/n", b"", -1]),
    ],
)
def test_every_write_needs_its_permission(missing: int, command: list[Any]) -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/n", acl=[[31 - missing, "world", "anyone"], [missing, "digest", "alice:hash"]])
    client.identities = SUPER
    client.make("/n/old")
    client.identities = [["digest", "bob:hash"]]
    assert client.one(*command).err == NO_AUTH
    assert client.multi(command).value == [(-1, NO_AUTH, None)]
    client.identities = ALICE
    assert client.one(*command).err == 0


def test_reads_and_checks_need_read() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/n", b"secret", acl=[[30, "world", "anyone"], [1, "digest", "alice:hash"]])
    assert client.multi([13, "/n", 7]).value == [(-1, NO_AUTH, None)]
    for read in (queries.get_data, queries.exists, queries.get_children, queries.get_children2):
        assert read(driver.machine, "/n") == NO_AUTH
        assert not isinstance(read(driver.machine, "/n", ALICE), int)
    client.identities = ALICE
    assert client.multi([13, "/n", 0]).value == [(13, 0, None)]


def test_an_acl_is_stored_once_and_forgotten_with_its_last_node() -> None:
    driver = Driver()
    client = driver.connect()
    table = driver.machine.tree.acls
    before = len(table)
    acl = [[31, "digest", "a:b"]]
    client.identities = [["digest", "a:b"]]
    client.make("/a", acl=acl)
    client.make("/b", acl=acl)
    client.multi([1, "/c", b"", acl, 0], [2, "/c", -1])
    assert len(table) == before + 1
    assert [count for _, content, count in table.stored() if content == ((31, "digest", "a:b"),)] == [2]
    client.remove("/a")
    client.remove("/b")
    assert len(table) == before
    driver.machine.check_invariants()


def test_numbers_go_round_and_skip_those_in_use() -> None:
    table = AclTable()
    first = table.acquire(((1, "world", "anyone"),))
    table.next_number = 2**31 - 1
    assert table.acquire(((2, "world", "anyone"),)) == 2**31 - 1
    assert table.next_number == first == 1
    assert table.acquire(((3, "world", "anyone"),)) == 2
