"""What a frame of `quorate top` shows, and what it leaves out where there is little room."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.top.frame import fitted, frame


def seen(topics: int = 1, groups: int = 1, findings: int = 0, **more: Any) -> dict[str, Any]:
    """What was read of a cluster."""
    found = [
        {"severity": "warning", "check": "node-down", "what": f"node {each}"} for each in range(findings)
    ]
    topic = {"status": "ok", "partitions": 3, "records": 10, "bytes": 2048, "lag": 7}
    group = {"status": "Stable", "member_count": 2, "topics": 1, "lag": 7}
    node = {"id": 1, "role": "leader", "term": 4, "commit_index": 90, "lag": 0, "problem": None}
    broker = {"id": 1, "status": "up", "clients": "127.0.0.1:9092", "leads": 3, "replicas": 3}
    return {
        "verdict": "warning" if found else "healthy",
        "sentence": "node 0 is down: start it" if found else "healthy",
        "findings": found,
        "nodes": [node],
        "brokers": [broker],
        "controller": 1,
        "coordinator": None,
        "zxid": 2**60,
        "partitions": 3,
        "offline": 0,
        "under_replicated": 0,
        "not_preferred": None,
        "problem": None,
        "topics": [{"name": f"topic-{each}", **topic} for each in range(topics)],
        "groups": [{"name": f"group-{each}", **group} for each in range(groups)],
        **more,
    }


def texts(fields: dict[str, Any]) -> list[str]:
    return [" ".join(line.text.split()) for line in frame(fields)]


def test_a_frame_has_all_of_it() -> None:
    assert texts(seen()) == [
        "healthy",
        f"zxid {2**60}, partitions 3, offline 0, under-replicated 0",
        "",
        "NODE ROLE TERM COMMITTED LAG",
        "1 leader 4 90 0",
        "",
        "BROKER STATE DUTY CLIENTS LEADS REPLICAS",
        "1 up controller 127.0.0.1:9092 3 3",
        "",
        "TOPIC STATE PARTITIONS RECORDS SIZE LAG",
        "topic-0 ok 3 10 2.0 KiB 7",
        "",
        "GROUP STATE MEMBERS TOPICS LAG",
        "group-0 Stable 2 1 7",
    ]


def test_the_worst_finding_is_the_verdict_and_a_line_of_each_check_follows() -> None:
    fields = seen(findings=53)
    fields["findings"] += [
        {"severity": "info", "check": check, "what": f"{check} {number}"}
        for check in ("one", "two", "three", "four")
        for number in range(2)
    ]
    shown = texts(fields)
    assert shown[0] == "warning: node 0 is down: start it"
    assert shown[1:6] == [
        "warning node-down: node 1 (and 51 more)",
        *(f"info {check}: {check} 0 (and 1 more)" for check in ("one", "two", "three")),
        "… 2 more (quorate doctor)",
    ]


def test_lag_that_is_not_known_is_no_number() -> None:
    fields = seen(problem="brokers did not answer\x1b[2J")
    fields["topics"][0] |= {"lag": None, "records": None, "bytes": None}
    shown = texts(fields)
    assert "lag is not known: brokers did not answer\\x1b[2J" in shown
    assert "topic-0 ok 3 - - -" in shown


def test_a_name_from_outside_acts_on_no_terminal() -> None:
    fields = seen()
    fields["groups"][0]["name"] = "\x1b[2Jexe\u202egnp\n"
    assert texts(fields)[-1] == r"\x1b[2Jexe\u202egnp\n Stable 2 1 7"
    assert all(line.text.isprintable() for line in frame(fields))


def test_a_quorum_without_brokers_has_no_lists() -> None:
    fields = seen(0, 0, brokers=[], partitions=None, offline=None, under_replicated=None)
    assert texts(fields) == [
        "healthy", f"zxid {2**60}", "", "NODE ROLE TERM COMMITTED LAG", "1 leader 4 90 0"
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [1, 10, 40, 200])
@pytest.mark.parametrize("rows", [1, 5, 12, 24, 60])
def test_a_frame_fits(columns: int, rows: int) -> None:
    lines = fitted(seen(1000, 300, findings=9), columns, rows)
    assert len(lines) <= rows
    assert all(len(line.text) <= columns for line in lines)


def test_lists_share_the_room_and_say_what_is_missing() -> None:
    shown = [line.text for line in fitted(seen(1000, 4), 80, 30)]
    assert len(shown) == 30
    assert sum(text.startswith("topic-") for text in shown) == 13
    assert "… 987 more" in shown
    assert sum(text.startswith("group-") for text in shown) == 4
    low = [line.text for line in fitted(seen(1000, 1000), 80, 16)]
    assert [text.split()[0] for text in low if text[:5] in ("topic", "group")] == ["topic-0", "group-0"]
