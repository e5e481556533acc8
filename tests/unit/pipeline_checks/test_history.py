"""Histories: invocations and completions find each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.checks.history import NEVER_NS, HistoryError, check_whole, pair, read_history


def line(kind: str, argument: Any, time_ns: int, result: Any = None, process: str = "p") -> dict[str, Any]:
    return {
        "process": process,
        "operation": "write",
        "key": "k",
        "argument": argument,
        "type": kind,
        "result": result,
        "zxid": 0,
        "node": "",
        "time_ns": time_ns,
    }


def test_several_operations_of_a_process_may_be_under_way() -> None:
    lines = [line("invoke", "a", 1), line("invoke", "b", 2), line("ok", "b", 3, 7), line("fail", "a", 4)]
    first, second = pair(lines)
    assert (first.argument, first.outcome, first.completed_ns) == ("a", "fail", 4)
    assert (second.argument, second.outcome, second.result) == ("b", "ok", 7)


def test_an_operation_without_a_completion_is_unknown() -> None:
    (found,) = pair([line("invoke", "a", 1)])
    assert (found.outcome, found.completed_ns) == ("unknown", NEVER_NS)


def test_an_unknown_outcome_ends_never() -> None:
    (found,) = pair([line("invoke", "a", 1), line("unknown", "a", 2)])
    assert found.completed_ns == NEVER_NS


@pytest.mark.parametrize("lines", [[line("ok", "a", 1)], [line("invoke", "a", 1), line("done", "a", 2)]])
def test_a_history_that_cannot_be_is_refused(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(HistoryError):
        pair(lines)


def test_a_folder_is_read_and_a_torn_line_refused(tmp_path: Path) -> None:
    whole = json.dumps(line("invoke", "a", 2)) + "\n"
    (tmp_path / "p.jsonl").write_text(whole)
    (tmp_path / "q.jsonl").write_text(json.dumps(line("invoke", "b", 1, process="q")) + "\n")
    assert [each.argument for each in read_history(tmp_path)] == ["b", "a"]
    (tmp_path / "q.jsonl").write_text("nonsense\n" + whole)
    with pytest.raises(HistoryError, match=r"q\.jsonl:1"):
        read_history(tmp_path)
    (tmp_path / "q.jsonl").write_text(whole + '{"process": "q", "ope')
    with pytest.raises(HistoryError, match=r"q\.jsonl:2"):
        read_history(tmp_path)


@pytest.mark.parametrize("name", ["history/p.jsonl", "final.jsonl"])
def test_a_run_that_lost_a_file_or_the_end_of_one_is_damaged(tmp_path: Path, name: str) -> None:
    (tmp_path / "history").mkdir()
    files = ["history/p.jsonl", "final.jsonl"]
    for each in files:
        (tmp_path / each).write_text('{"key": "a"}\n')
    check_whole(tmp_path, files)
    (tmp_path / name).write_text("")
    check_whole(tmp_path, files)
    (tmp_path / name).write_text('{"key": "a"}\n{"key": "b"}')
    with pytest.raises(HistoryError, match="ends inside a line"):
        check_whole(tmp_path, files)
    (tmp_path / name).unlink()
    with pytest.raises(HistoryError, match="is missing"):
        check_whole(tmp_path, files)
