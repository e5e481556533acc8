"""Each check of quorum, processes and files: what it finds, and what it leaves alone."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest

from quorum.health.findings import Check, Finding, examine
from quorum.health.machine_checks import MACHINE_CHECKS
from quorum.health.process_checks import PROCESS_CHECKS
from quorum.health.quorum_checks import QUORUM_CHECKS, p99_s
from quorum.health.seen import (
    ConfigSeen,
    FileSeen,
    MachineSeen,
    MemberSeen,
    NodeSeen,
    ProcessesSeen,
    ProcessSeen,
    QuorumSeen,
    RoomSeen,
    SettingProblem,
    TermRise,
)
from tests.support.commands import is_command

NOW_S: Final = 1_000_000_000.0
DAY_S: Final = 86_400.0
GIB: Final = 1024**3
CHECKS: Final[tuple[Check[Any], ...]] = (*QUORUM_CHECKS, *PROCESS_CHECKS, *MACHINE_CHECKS)


def members(*roles: str, voters: int = 9) -> tuple[MemberSeen, ...]:
    return tuple(
        MemberSeen(node_id, role, node_id <= voters, None if role == "unreachable" else 100)
        for node_id, role in enumerate(roles, 1)
    )


THREE: Final = members("leader", "follower", "follower")
#: observations of a quick disk
QUICK: Final = ((0.01, 5000.0), (0.1, 5000.0), (math.inf, 5000.0))


def node(node_id: int, role: str = "follower", **more: Any) -> NodeSeen:
    given: dict[str, Any] = {
        "cluster_id": "c0ffee",
        "term": 7,
        "leader_id": 1,
        "commit_index": 100,
        "zxid": 50,
        "digest": "ab",
        "members": THREE,
        "journal": QUICK,
        "changelog_pending_bytes": 0.0,
        "snapshots_failed": 0.0,
    }
    process = ProcessSeen(f"node {node_id}", f"http://h:818{node_id}")
    return NodeSeen(process, node_id, role=role, **(given | more))


def quorum(*nodes: NodeSeen, **more: Any) -> QuorumSeen:
    given: dict[str, Any] = {"terms": TermRise(7, 7, 3700.0)}
    return QuorumSeen(nodes or (node(1, "leader"), node(2), node(3)), **(given | more))


def process(name: str = "node 1", **more: Any) -> ProcessSeen:
    given: dict[str, Any] = {
        "version": "1.0",
        "clock_ahead_s": 0.2,
        "open_files": 10,
        "open_files_max": 100,
        "expiries": {"client": NOW_S + 90 * DAY_S},
        "longest_turn_s": 0.1,
        "room": RoomSeen(50 * GIB, -6 * GIB, DAY_S),
    }
    return ProcessSeen(name, "http://h:1", **(given | more))


def processes(*seen: ProcessSeen) -> ProcessesSeen:
    return ProcessesSeen((process(), *(seen or (process("node 2"),))), NOW_S)


def file(kind: str, mode: int | None = 0o600, **more: Any) -> FileSeen:
    return FileSeen(f"/x/{kind}", "/x/node.toml", f"security.{kind}_file", kind, mode, **more)


def machine(*files: FileSeen, problems: tuple[SettingProblem, ...] = ()) -> MachineSeen:
    sound = (
        file("secret", 0o640),
        file("certificate", expires_s=NOW_S + 90 * DAY_S),
        file("data_dir", 0o755, free_bytes=50 * GIB, size_bytes=100 * GIB),
    )
    return MachineSeen((ConfigSeen("/x/node.toml", problems),), (*sound, *files), NOW_S)


DOWN: Final = members("leader", "follower", "unreachable")
BEHIND: Final = (
    MemberSeen(1, "leader", voter=True, match_index=20_000),
    MemberSeen(2, "follower", voter=True, match_index=20_000),
    MemberSeen(3, "follower", voter=True, match_index=100),
)
REFUSED: Final = (*THREE[:2], MemberSeen(3, "refused", True, None, "another disk"))
SLOW: Final = ((0.01, 4000.0), (0.1, 4900.0), (0.5, 5000.0), (math.inf, 5000.0))

#: (what was seen, check that finds it, subject)
FOUND: Final[list[tuple[Any, str, str]]] = [
    (QuorumSeen((), {"http://h:1": "refused"}), "no-quorum", "quorum"),
    (quorum(node(1, "candidate", leader_id=None, problem="no majority")), "no-quorum", "quorum"),
    (quorum(refused={"http://h:9": "HTTP 401"}), "admin-refused", "http://h:9"),
    (quorum(node(1, "leader"), node(2, digest="cd")), "digests-differ", "quorum"),
    (quorum(node(1, "leader"), node(2, cluster_id="other")), "clusters-differ", "quorum"),
    (quorum(node(1, "leader", members=DOWN), node(2)), "node-down", "node 3"),
    (quorum(node(1, "leader", members=REFUSED), node(2)), "node-refused", "node 3"),
    (quorum(node(1, "leader"), node(2, problem="applied 3 of 9")), "node-not-ready", "node 2"),
    (quorum(silent={"http://h:9": "no answer"}), "admin-silent", "http://h:9"),
    (quorum(node(1, "leader", commit_index=10_101, members=BEHIND)), "member-lag", "node 3"),
    (quorum(terms=TermRise(1, 8, 3600.0)), "elections-often", "quorum"),
    (quorum(terms=TermRise(1, 8, 60.0)), "elections-often", "quorum"),
    (quorum(node(1, "leader", members=members("leader", "follower"))), "voters-even", "quorum"),
    (quorum(node(1, "leader", import_source="zk:2181")), "import-under-way", "quorum"),
    (quorum(node(1, "leader", journal=SLOW)), "fsync-slow", "node 1"),
    (quorum(node(1, "leader", changelog_pending_bytes=9e6)), "changelog-waits", "node 1"),
    (quorum(node(1, "leader", snapshots_failed=1.0)), "snapshots-failed", "node 1"),
    (quorum(node(1, "leader", members=members("leader"))), "voter-lone", "node 1"),
    (processes(process(expiries={"client": NOW_S + 29 * DAY_S})), "certificate-expires", "node 1"),
    (processes(process("broker 1", room=RoomSeen(50 * GIB, -8 * GIB, DAY_S))), "disk-fills", "broker 1"),
    (processes(process("broker 1", open_files=81)), "open-files", "broker 1"),
    (processes(process("broker 1", clock_ahead_s=2.3)), "clocks-differ", "broker 1"),
    (processes(process("broker 1", version="1.1")), "versions-differ", "cluster"),
    (processes(process(feature_level=2), process("node 2", feature_level=1)), "versions-differ", "cluster"),
    (processes(process("broker 1", longest_turn_s=1.5)), "loop-held", "broker 1"),
    (machine(file("secret", 0o644)), "secret-readable", "/x/secret"),
    (machine(file("secret", 0o602)), "secret-readable", "/x/secret"),
    (machine(file("key", 0o640)), "secret-readable", "/x/key"),
    (machine(file("users", 0o640)), "secret-readable", "/x/users"),
    (
        machine(problems=(SettingProblem("node.id", "0", "is out of range", "give 1"),)),
        "config-wrong",
        "/x/node.toml",
    ),
    (
        machine(file("certificate", expires_s=NOW_S + 3 * DAY_S)),
        "certificate-file-expires",
        "/x/certificate",
    ),
    (machine(file("data_dir", free_bytes=9 * GIB, size_bytes=100 * GIB)), "disk-low", "/x/data_dir"),
    (machine(file("data_dir", free_bytes=GIB // 2, size_bytes=GIB)), "disk-low", "/x/data_dir"),
]
#: what none of the checks has an objection to
SOUND: Final[list[Any]] = [
    quorum(),
    quorum(silent={"http://127.0.0.1:8183": "no answer"}, named=False),
    # A silent port is that of the node that is down.
    quorum(node(1, "leader"), node(2), node(3, zxid=51, digest="cd")),
    quorum(node(1, "leader", members=members("leader", "follower", "follower", "learner", voters=3))),
    quorum(node(1, "leader", commit_index=10_100, members=BEHIND)),
    # So few writes say nothing.
    quorum(node(1, "leader", journal=((0.1, 0.0), (math.inf, 999.0)))),
    processes(),
    machine(),
    # A large disk that has room is not low.
    machine(file("data_dir", free_bytes=21 * GIB, size_bytes=1000 * GIB)),
    # secret-readable says it already; what is missing, the start says.
    machine(file("secret", None)),
]


def checks_of(seen: Any) -> tuple[Check[Any], ...]:
    tables: dict[type, tuple[Check[Any], ...]] = {
        QuorumSeen: QUORUM_CHECKS,
        ProcessesSeen: PROCESS_CHECKS,
        MachineSeen: MACHINE_CHECKS,
    }
    return tables[type(seen)]


def findings(seen: Any) -> tuple[Finding, ...]:
    return examine(checks_of(seen), seen).findings


@pytest.mark.parametrize(("seen", "check", "subject"), FOUND, ids=[row[1] for row in FOUND])
def test_what_is_wrong_is_found_and_says_what_helps(seen: Any, check: str, subject: str) -> None:
    found = [each for each in findings(seen) if each.check == check]
    assert [each.subject for each in found] == [subject]
    for each in found:
        assert each.what and each.why and each.remedy
        assert not each.what.endswith(".")
        assert each.command is None or is_command(each.command)


@pytest.mark.parametrize("seen", SOUND)
def test_what_is_sound_is_left_alone(seen: Any) -> None:
    assert findings(seen) == ()


def test_every_check_has_a_case() -> None:
    assert {row[1] for row in FOUND} == {check.name for check in CHECKS}


def test_a_node_that_is_down_explains_a_silent_port() -> None:
    seen = quorum(node(1, "leader", members=DOWN), node(2), silent={"http://h:8183": "refused"})
    assert [each.check for each in findings(seen)] == ["node-down"]


def test_a_port_that_wants_a_token_is_no_missing_quorum() -> None:
    seen = QuorumSeen((), refused={"http://h:9": "HTTP 401"})
    assert [each.check for each in findings(seen)] == ["admin-refused"]


def test_a_file_that_is_open_is_found_once() -> None:
    problem = SettingProblem("security.secret_file", "'/x/secret'", "is open to every user", "chmod 600")
    seen = machine(file("secret", 0o644), file("secret", 0o644), problems=(problem,))
    assert [each.check for each in findings(seen)] == ["secret-readable"]


def test_a_certificate_that_has_expired_is_an_error() -> None:
    (first,) = findings(processes(process(expiries={"client": NOW_S - DAY_S})))
    assert (first.severity.value, "expired 1.0 days ago" in first.what) == ("error", True)


@pytest.mark.parametrize("seen", [QuorumSeen(), ProcessesSeen((), NOW_S), MachineSeen((), (), NOW_S)])
def test_what_nothing_is_known_of_is_skipped_with_a_reason(seen: Any) -> None:
    outcomes = examine(checks_of(seen), seen).checks
    known = ("no-quorum", "admin-refused", "digests-differ", "clusters-differ")
    unknown = [each for each in outcomes if each.check not in known]
    assert unknown
    assert all(each.outcome == "skipped" and each.reason for each in unknown)


def test_a_disk_that_is_full_within_a_day_is_an_error() -> None:
    (first,) = findings(processes(process(room=RoomSeen(1 * GIB, -1 * GIB, 2 * 3600.0))))
    assert first.severity.value == "error"
    assert "full in 0.1 days, if it fills as in the last 2.0 hours" in first.what


@pytest.mark.parametrize(
    "room",
    [RoomSeen(GIB, GIB, DAY_S), RoomSeen(GIB, 0, DAY_S), RoomSeen(0, 0, DAY_S), RoomSeen(GIB, -GIB, 3599.0)],
)
def test_a_disk_that_does_not_fill_or_was_watched_briefly_is_left_alone(room: RoomSeen) -> None:
    assert findings(processes(process(room=room))) == ()


def test_p99_is_the_bound_that_99_of_100_keep() -> None:
    assert p99_s(()) is None
    assert p99_s(((0.1, 0.0), (math.inf, 0.0))) is None
    assert p99_s(((0.1, 99.0), (0.2, 100.0), (math.inf, 100.0))) == 0.1
    assert p99_s(((0.1, 98.0), (math.inf, 100.0))) == math.inf
