"""What the console keeps of the change log: who did what, and how the term rose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.console.meaning import meaning
from quorum.console.history import TERM_SPAN_MS, History
from quorum.health.seen import TermRise

START_MS = 1_700_000_000_000


def row(
    zxid: int, term: int = 1, session_id: int = 0, at_ms: int = START_MS, **change: Any
) -> Mapping[str, Any]:
    """One transaction as the change log has it, with at most one change."""
    changes = [{"version": 0, "before": None, "after": None, **change}] if change else []
    return {"zxid": zxid, "ts": at_ms, "term": term, "session_id": session_id, "changes": changes}


def told(history: History) -> list[tuple[str, str, str, str]]:
    return [(each.kind, each.subject, each.text, each.by) for each in history.events]


def test_an_event_names_the_settings_that_changed_and_who_did_it() -> None:
    history = History([meaning], lambda _zxid, _paths: None)
    settings: dict[str, Any] = {
        "path": "/config/topics/orders",
        "before": b'{"version":1,"config":{"a":"1","b":"2"}}',
    }
    registered = b'{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:9092"],"features":{},"rack":null}'
    changed = b'{"version":1,"config":{"a":"1","b":"3","c":"4"}}'
    history.add(
        [
            row(1, session_id=7, op="c", path="/brokers/ids/3", after=registered),
            row(2, session_id=7, op="u", after=changed, **settings),
            row(3, session_id=-1, op="d", **settings),
            row(4, op="u", after=settings["before"], **settings),
            row(5, session_id=7, op="d", path="/brokers/ids/3", before=registered),
        ]
    )
    assert told(history) == [
        ("broker-up", "broker 3", "registered", ""),
        ("settings", "topic orders", "settings changed: b, c", "broker 3"),
        ("settings", "topic orders", "settings changed: a, b", "session 0xffffffffffffffff"),
        ("broker-down", "broker 3", "is gone", ""),
    ]


@pytest.mark.parametrize(
    ("began_ms", "rise"),
    [
        # The terms 1 to 4 began a minute apart, and it is now that long after the first one.
        (180_000, TermRise(1, 4, 180.0)),
        (TERM_SPAN_MS + 70_000, TermRise(2, 4, 3600.0)),
        (10 * TERM_SPAN_MS, TermRise(4, 4, 3600.0)),
    ],
)
def test_the_term_rises_within_the_last_hour(began_ms: int, rise: TermRise) -> None:
    history = History([], lambda _zxid, _paths: None)
    assert isinstance(history.term_rise(START_MS), str)
    # The founding has no time.
    history.add(
        [row(0, at_ms=0), *(row(term, term, at_ms=START_MS + 60_000 * (term - 1)) for term in (1, 2, 3))]
    )
    history.caught_up.set()
    history.note_term(4, 2, START_MS + 180_000)
    assert history.term_rise(START_MS + began_ms) == rise
