"""What of clients' commands and their outcomes becomes a line of the audit log."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorum.core.codes import (
    NO_AUTH,
    NO_NODE,
    OP_CHECK,
    OP_CLOSE_SESSION,
    OP_CREATE2,
    OP_CREATE_TTL,
    OP_DELETE,
    OP_MULTI,
    OP_SET_ACL,
    OP_SET_DATA,
    OP_SYNC,
)
from quorum.core.results import Result, RunOutcome
from quorum.platform.audit import AuditLog
from quorum.server.audit import AuditedClient, ClientAudit, Submitted, principal_of

SECRET = "pl4nted"
CLIENT = cast(
    "AuditedClient",
    SimpleNamespace(session_id=31, identities=[["ip", "::1"]], stream=SimpleNamespace(address="[::1]:9")),
)


def lines(
    folder: Path, commands: list[list[Any]], results: list[Result] | None
) -> list[tuple[str, str, str]]:
    """Return (operation, resource, outcome) of each line that a run makes."""
    log = AuditLog(folder / "audit.log", file_bytes_max=1 << 20, files_max=1)
    log.start()
    run = Submitted.of(CLIENT.identities, list(range(len(commands))), commands)
    ClientAudit(log, "node:1").wrote(CLIENT, run, None if results is None else RunOutcome(31, 1, results))
    log.stop()
    text = (folder / "audit.log").read_text()
    assert SECRET not in text
    found = [json.loads(line) for line in text.splitlines()]
    assert {each["session"] for each in found} <= {"0x1f"}
    return [(each["operation"], each["resource"], each["outcome"]) for each in found]


def result(err: int, value: Any = None, events: Any = None) -> Result:
    return Result(err, 1, value, events)


def test_each_outcome_has_its_word(tmp_path: Path) -> None:
    commands = [
        [OP_CREATE2, "/a-", SECRET, None, 2],
        [OP_CREATE_TTL, "/t", SECRET, None, 5, 1],
        [OP_SET_DATA, "/b", SECRET, -1],
        [OP_DELETE, "/c", -1],
        [OP_SET_ACL, "/d", [[31, "digest", SECRET]], -1],
        [OP_SYNC, "/e"],
    ]
    results = [
        *(result(0, ("/a-7", b"")), result(0, "/t"), result(NO_AUTH), result(NO_NODE), result(0, b"")),
        result(0),
    ]
    assert lines(tmp_path, commands, results) == [
        ("create", "/a-7", "allowed"),
        ("create", "/t", "allowed"),
        ("setData", "/b", "denied"),
        ("delete", "/c", "failed"),
        ("setAcl", "/d", "allowed"),
    ]


def test_what_nobody_here_will_know_is_unknown(tmp_path: Path) -> None:
    parts = [[OP_SET_DATA, "/a", SECRET, -1], [OP_DELETE, "/b", -1], [OP_CHECK, "/c", -1]]
    assert lines(tmp_path, [[OP_MULTI, parts], [OP_DELETE, "/d", -1]], None) == [
        ("setData", "/a", "unknown"),
        ("delete", "/b", "unknown"),
        ("delete", "/d", "unknown"),
    ]


def test_a_multi_that_is_refused_names_the_part_that_was(tmp_path: Path) -> None:
    parts = [[OP_SET_DATA, "/a", SECRET, -1], [OP_CHECK, "/b", 1], [OP_DELETE, "/c", -1]]
    items = [(-1, 0, None), (-1, NO_AUTH, None), (-1, -2, None)]
    assert lines(tmp_path, [[OP_MULTI, parts]], [result(0, items)]) == [
        ("setData", "/a", "failed"),
        ("check", "/b", "denied"),
        ("delete", "/c", "failed"),
    ]


def test_the_end_of_a_session_takes_its_ephemerals_along(tmp_path: Path) -> None:
    events = [(2, "/e"), (4, "/"), (-1, 31)]
    assert lines(tmp_path, [[OP_CLOSE_SESSION]], [result(0, None, events)]) == [
        ("closeSession", "", "allowed"),
        ("ephemeralZNodeDeletionOnSessionCloseOrExpire", "/e", "allowed"),
    ]


@pytest.mark.parametrize(
    ("identities", "principal"),
    [
        (None, ""),
        ([["ip", "10.0.0.1"]], "ip:10.0.0.1"),
        ([["ip", "10.0.0.1"], ["sasl", "eve"]], "sasl:eve,ip:10.0.0.1"),
        ([["digest", f"dan:{SECRET}"], ["x509", "CN=a,O=b"]], "digest:dan,x509:CN=a,O=b"),
    ],
)
def test_a_principal_is_all_that_was_proven_without_hashes(
    identities: list[list[str]] | None, principal: str
) -> None:
    assert principal_of(identities) == principal
