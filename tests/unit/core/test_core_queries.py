"""Reads: answers and error codes."""

from __future__ import annotations

import pytest

from quorum.core import queries
from quorum.core.codes import BAD_ARGUMENTS, NO_NODE
from tests.unit.core.driver import Driver, decode_stat


def test_a_node_is_read_in_every_way() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"data")
    client.make("/a/x")
    client.make("/a/y")
    machine = driver.machine
    stat = queries.exists(machine, "/a")
    assert decode_stat(stat).children == 2
    assert queries.get_data(machine, "/a") == (b"data", stat)
    assert queries.get_children(machine, "/a") == ["x", "y"]
    assert queries.get_children2(machine, "/a") == (["x", "y"], stat)
    assert queries.get_children(machine, "/a/x") == []
    assert queries.get_children2(machine, "/a/x") == ([], queries.exists(machine, "/a/x"))


def test_the_children_are_a_copy() -> None:
    driver = Driver()
    names = queries.get_children(driver.machine, "/zookeeper")
    assert isinstance(names, list)
    names.clear()
    assert queries.get_children(driver.machine, "/zookeeper") == ["quota", "config"]


@pytest.mark.parametrize(
    "path", ["/missing", "a", "//", "/zookeeper/", "/zookeeper/quota/x", "/zookeeper//quota"]
)
def test_what_cannot_exist_does_not(path: str) -> None:
    machine = Driver().machine
    for read in (queries.get_data, queries.exists, queries.get_children, queries.get_children2):
        assert read(machine, path) == NO_NODE


def test_a_nul_is_a_bad_argument_of_exists_alone() -> None:
    machine = Driver().machine
    assert queries.exists(machine, "/\0") == BAD_ARGUMENTS
    assert queries.get_data(machine, "/\0") == NO_NODE


def test_the_empty_path_is_the_root() -> None:
    machine = Driver().machine
    assert queries.get_children2(machine, "") == queries.get_children2(machine, "/")
    assert queries.exists(machine, "") == queries.exists(machine, "/")
