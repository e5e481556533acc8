"""history_check judges recorded runs as their own checkers do, and refuses damaged ones."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.checks.history import FAIL, OK, UNKNOWN, HistoryError, Operation, check_whole
from pipeline.checks.registers import BAD_VERSION, linearizable
from pipeline.checks.suites import PARTS
from pipeline.errors import InputError, OptionError
from pipeline.jobs.histories import read_runs
from pipeline.jobs.history_check import compute
from pipeline.jobs.witness import plain_registers
from quorum.cli.main import main
from tests.chaos.__main__ import main as check_again
from tests.chaos.workloads import WORKLOADS
from tests.pipeline.recorded import SAMPLED, RecordedRun, broken, judged, sound


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: `sound`, and `broken` with a violation for every check."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("sound", "broken"):
        run = RecordedRun(folder / name, SAMPLED)
        sound(run)
        if name == "broken":
            broken(run)
        run.close()
    return folder


def test_every_workload_of_chaos_has_its_checks() -> None:
    assert {part.workload for part in PARTS} == set(WORKLOADS)


def test_verdicts_are_those_of_the_checkers_themselves(spark: SparkSession, runs: Path) -> None:
    rows = compute(read_runs(spark, [runs])).collect()
    for name in ("sound", "broken"):
        found: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in rows:
            if row.run == name:
                found[row.workload, row.check].append(row)
        expected = judged(runs / name)
        assert set(found) == {(workload, verdict.check) for workload, verdict in expected}
        for workload, verdict in expected:
            mine = found[workload, verdict.check]
            bad = [row for row in mine if row.verdict != OK]
            assert bool(bad) == (name == "broken"), (name, verdict)
            assert (verdict.state == OK) == (not bad), (name, verdict)
            problems = [problem for row in bad for problem in row.problems]
            assert sorted(problems) == sorted(verdict.problems), verdict
            if verdict.state == OK:
                assert sum(row.judged for row in mine) == verdict.judged
    example = next(row for row in rows if row.key == "register-3").counter_example
    assert any("read register-3" in line for line in example)
    assert rows[0].verdict == "bad", "what is wrong comes first"


def test_the_command_exits_with_1_on_a_finding_only(
    spark: SparkSession, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "history_check", str(runs / "sound"), "--format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["verdict"] for line in lines} == {OK}
    assert main(["pipeline", "history_check", str(runs / "broken")]) == 1
    assert "is lost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "line", "says"),
    [
        ("history/w.jsonl", '{"process": "w", "opera', "is not JSON"),
        ("history/w.jsonl", "[1, 2]", "is not an operation"),
        ("history/w.jsonl", '{"process": "w", "operation": "read", "type": "ok"}', "key is None"),
        (
            "history/w.jsonl",
            '{"process":"w","operation":"read","key":"k","argument":null,"type":"done","time_ns":1}',
            "type 'done' is none",
        ),
        (
            "history/w.jsonl",
            '{"process":"w","operation":"read","key":"k","argument":null,"type":"ok","time_ns":1}',
            "never invoked",
        ),
        ("final.jsonl", '{"argument": 1}', "has no key"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(
    spark: SparkSession, tmp_path: Path, file: str, line: str, says: str
) -> None:
    folder = tmp_path / "run"
    run = RecordedRun(folder, SAMPLED)
    sound(run)
    run.close()
    path = folder / file
    whole = path.read_text().splitlines()
    path.write_text("\n".join([*whole[:1], line, *whole[1:]]) + "\n")
    with pytest.raises(InputError, match=re.escape(f"{path}:2: ")) as caught:
        read_runs(spark, [folder])
    assert says in str(caught.value)


@pytest.mark.parametrize("file", ["history/w.jsonl", "final.jsonl"])
@pytest.mark.parametrize(
    ("left", "says"),
    [
        (None, "is missing"),
        (lambda text: text[:-20], "is not JSON"),
    ],
    ids=["missing", "cut in a line"],
)
def test_a_run_that_lost_something_is_refused(
    spark: SparkSession, tmp_path: Path, file: str, left: Callable[[str], str] | None, says: str
) -> None:
    folder = tmp_path / "run"
    run = RecordedRun(folder, SAMPLED)
    sound(run)
    run.close()
    assert read_runs(spark, [folder]).count()
    path = folder / file
    text = path.read_text()
    path.unlink()
    if left is not None:
        path.write_text(left(text))
    elif file == "final.jsonl":
        says = "has no final.jsonl"
    with pytest.raises(InputError, match=says):
        read_runs(spark, [folder])
    with pytest.raises((HistoryError, FileNotFoundError)):
        whole_and_judged(folder)


@pytest.mark.parametrize("lost", ["run.json", "final.jsonl"])
def test_the_chaos_checker_refuses_a_damaged_run_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    RecordedRun(tmp_path, SAMPLED).close()
    (tmp_path / lost).unlink()
    assert check_again(["--check", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path} is no whole recorded run: {lost}" in said
    assert "remedy: " in said


def whole_and_judged(folder: Path) -> None:
    check_whole(folder, json.loads((folder / "run.json").read_text())["files"])
    judged(folder)


def test_a_check_that_judged_nothing_is_not_ok(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RecordedRun(tmp_path, SAMPLED).close()
    rows = compute(read_runs(spark, [tmp_path])).collect()
    assert {(row.workload, row.check) for row in rows} == {
        (part.workload, verdict.check)
        for part in PARTS
        if part.workload in SAMPLED
        for verdict in part.judge((), ())
    }
    assert {(row.verdict, row.judged) for row in rows} == {(UNKNOWN, 0)}
    assert {verdict.state for _, verdict in judged(tmp_path)} == {UNKNOWN}
    assert main(["pipeline", "history_check", str(tmp_path)]) == 1
    assert "nothing was there to judge" in capsys.readouterr().out


def test_what_is_no_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no run"):
        read_runs(spark, [tmp_path])
    (tmp_path / "run.json").write_text('{"workloads": ["registers"]}')
    with pytest.raises(InputError, match="has no history"):
        read_runs(spark, [tmp_path])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        read_runs(spark, [tmp_path])


def test_a_workload_that_nobody_judges_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RecordedRun(tmp_path, ["tea"]).close()
    assert main(["pipeline", "history_check", str(tmp_path)]) != 0
    assert "no checker judges the workload tea" in capsys.readouterr().err


def test_registers_that_are_plain_are_linearizable(spark: SparkSession) -> None:
    rng = random.Random(7)
    histories = {f"register-{number}": _history(rng, wrong=number % 2 == 1) for number in range(400)}
    rows = [
        (
            *("run", each.process, each.operation, key, json.dumps(each.argument), each.outcome),
            *(json.dumps(each.result), each.invoked_ns, each.completed_ns),
        )
        for key, history in histories.items()
        for each in history
    ]
    names = "run string, process string, operation string, key string, argument string, outcome string"
    given = spark.createDataFrame(rows, names + ", result string, invoked_ns bigint, completed_ns bigint")
    plain = {row.key: row.judged for row in plain_registers(given).collect()}
    truth = {key: linearizable(history) for key, history in histories.items()}
    assert [key for key in plain if not truth[key]] == []
    fine = [key for key, found in truth.items() if found]
    assert len(fine) < 350, "the planted mistakes are mistakes"
    assert len(plain) > len(fine) * 0.8, "few are left to the search"
    assert all(plain[key] == len(histories[key]) for key in plain)


def _history(rng: random.Random, *, wrong: bool) -> list[Operation]:
    """Clients at a register, each operation at a random instant within its time; one result is wrong."""
    found: list[Operation] = []
    version, value = 0, "first"
    found.append(Operation("0", "create", "k", value, OK, 0, 0, "", 0, 1))
    for instant in range(10, 10 * rng.randint(5, 15), 10):
        kind = rng.choice(["read", "write", "cas"])
        new = f"v{instant}"
        outcome, argument, result = OK, None, [version, value]
        if kind == "cas" and rng.random() < 0.5:
            outcome, argument, result = FAIL, [version - rng.choice([1, 2]), new], BAD_VERSION  # type: ignore[assignment]
        elif kind != "read":
            argument = new if kind == "write" else [version, new]  # type: ignore[assignment]
            version, value = version + 1, new
            result = version  # type: ignore[assignment]
        begin, end = instant - rng.randint(0, 25), instant + rng.randint(0, 25)
        found.append(
            Operation(str(instant), kind, "k", argument, outcome, result, 0, "", max(2, begin), max(3, end))
        )
    if wrong:
        place = rng.randrange(1, len(found))
        found[place] = _spoilt(found[place], rng)
    return found


def _spoilt(each: Operation, rng: random.Random) -> Operation:
    later = rng.randint(30, 60)
    shift = rng.choice([-later, later])
    begin, end = max(2, each.invoked_ns + shift), max(3, each.completed_ns + shift)
    fields = (each.process, each.operation, "k", each.argument, each.outcome)
    return Operation(*fields, each.result, 0, "", begin, end)


def test_a_register_with_an_unknown_outcome_is_left_to_the_search(spark: SparkSession) -> None:
    rows = [
        ("run", "w", "create", "register-1", '"a"', OK, "0", 1, 2),
        ("run", "w", "write", "register-1", '"b"', UNKNOWN, "null", 3, None),
    ]
    names = "run string, process string, operation string, key string, argument string, outcome string"
    given = spark.createDataFrame(rows, names + ", result string, invoked_ns bigint, completed_ns bigint")
    assert plain_registers(given).isEmpty()
