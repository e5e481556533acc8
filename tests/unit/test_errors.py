"""The hierarchy of errors and the table of codes: what a caller may rely on."""

from __future__ import annotations

import pytest

from quorum import errors
from quorum.errors import (
    CODES,
    ConfigError,
    ConfigProblem,
    Fault,
    NotLeaderError,
    QuorateError,
    describe_code,
)


def test_a_timeout_or_a_lost_connection_is_never_definite() -> None:
    indefinite = {row.name for row in CODES.values() if not row.definite}
    assert {
        "CONNECTIONLOSS",
        "OPERATIONTIMEOUT",
        "REQUESTTIMEOUT",
        "SYSTEMERROR",
        "DATAINCONSISTENCY",
    } == indefinite
    assert not errors.UnreachableError.definite


def test_refusals_of_the_state_machine_are_definite() -> None:
    for code in (-101, -102, -103, -108, -110, -111, -112, -114, -118, -8):
        assert CODES[code].definite, CODES[code].name


def test_only_what_may_change_by_itself_is_retriable() -> None:
    retriable = {row.name for row in CODES.values() if row.retriable}
    assert {"CONNECTIONLOSS", "OPERATIONTIMEOUT", "SESSIONMOVED", "THROTTLEDOP", "NOTREADONLY"} <= retriable
    assert not {"NONODE", "BADVERSION", "NODEEXISTS", "NOAUTH", "BADARGUMENTS"} & retriable


def test_codes_are_listed_once_and_found_by_number() -> None:
    assert all(number == row.code for number, row in CODES.items())
    assert len({row.name for row in CODES.values()}) == len(CODES)
    assert describe_code(-103).name == "BADVERSION"


def test_an_unknown_code_is_read_carefully() -> None:
    row = describe_code(-4242)
    assert (row.name, row.definite, row.retriable) == ("CODE-4242", False, False)


def test_an_error_tells_its_remedy() -> None:
    assert str(QuorateError("the disk is full", "make room")) == "the disk is full (make room)"
    assert str(QuorateError("the disk is full")) == "the disk is full"


def test_a_configuration_error_names_every_problem() -> None:
    error = ConfigError.of(
        [ConfigProblem("a.b", "1", "is odd", "give 2"), ConfigProblem("a.c", "3", "is odd", "give 2")]
    )
    assert str(error) == "a.b = 1: is odd; a.c = 3: is odd (give 2)"
    assert error.field == "a.b"
    assert ConfigError("a.b", "x", "is odd", "give 2").problems[0].value == "'x'"


@pytest.mark.parametrize(("leader_id", "words"), [(2, "node 2 leads"), (None, "no leader is known")])
def test_not_leader_names_the_leader_and_had_no_effect(leader_id: int | None, words: str) -> None:
    error = NotLeaderError(leader_id)
    assert words in error.message
    assert (error.leader_id, error.definite, error.retriable) == (leader_id, True, True)


def test_damage_names_file_and_offset() -> None:
    error = errors.DataDamagedError("journal/1", 4096, "a record's CRC is wrong", "restore the node")
    assert "journal/1" in error.message
    assert "4096" in error.message
    assert error.fault is Fault.NODE
    assert isinstance(error, errors.DataDirError)


def test_a_printed_value_is_bounded() -> None:
    assert errors.shown("short") == "'short'"
    assert len(errors.shown("x" * 1_000_000)) == errors.VALUE_CHARS_MAX
