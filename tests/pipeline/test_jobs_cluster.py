"""`quorate pipeline` against a running cluster and against recordings of it: answers, files, errors."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from broker.local import BlockingBrokers, EmbeddedBrokers
from quorum.cli.main import main
from quorum.local import ensemble, in_thread
from tests.pipeline import oracle
from tests.pipeline.histories import Change
from tests.support.nodes import eventually
from tests.support.spark_jvm import SHORT_LIVED, SMALL_PLANS

DEADLINE_S = 120.0


@dataclass
class Cluster:
    url: str
    #: its history, as `quorate changelog dump --json` writes it
    recording: Path
    rows: list[Change]


@contextlib.asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[str, EmbeddedBrokers]]:
    async with ensemble(1, {"limits": {"tick_ms": 200}}) as quorum:
        brokers = EmbeddedBrokers(quorum.hosts, folder, 3, {})
        try:
            await brokers.start_all()
            yield quorum.admin_urls[0], brokers
        finally:
            await brokers.close()


def record(url: str, path: Path) -> list[Change]:
    """Write the history of a node to a file, and return it as rows."""
    with urllib.request.urlopen(f"{url}/v1/changelog?from_zxid=0&bytes_max=8388608") as answer:
        path.write_bytes(answer.read())
    rows: list[Change] = []
    for line in path.read_text().splitlines():
        transaction = json.loads(line)
        when = datetime.fromtimestamp(transaction["ts"] / 1000, UTC)
        of_all = transaction["session_id"], transaction["controller_epoch"], transaction["cluster_id"]
        for at, change in enumerate(transaction["changes"]):
            before, after = (
                None if each is None else base64.b64decode(each)
                for each in (change["before"], change["after"])
            )
            images = (change["op"], change["path"], before, after, change["version"])
            place = (transaction["zxid"], at, len(transaction["changes"]), transaction["term"], when)
            rows.append(Change._make((*place, *images, *of_all)))
    return rows


def states_of(rows: list[Change]) -> dict[tuple[str, int], dict[str, Any]]:
    world = oracle.World(rows)
    for row in rows:
        world.apply(row)
    return world.states


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("brokers")
    recording = folder / "history.jsonl"
    with in_thread(lambda: started(folder), "quorate-brokers") as ((url, embedded), loop):
        brokers = BlockingBrokers(embedded, loop)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        [done] = admin.create_topics([NewTopic("orders", 4, 3)]).values()
        done.result(DEADLINE_S)

        def states() -> list[dict[str, Any]]:
            return list(states_of(record(url, recording)).values())

        eventually(lambda: len(states()) == 4, DEADLINE_S)
        victim = states_of(record(url, recording))["orders", 0]["leader"]
        brokers.kill(victim)
        eventually(lambda: all(each["leader"] != victim for each in states()), DEADLINE_S)
        brokers.start(victim)
        eventually(lambda: all(len(each["isr"]) == 3 for each in states()), DEADLINE_S)
        rows = record(url, recording)
        assert rows[0].zxid < 3
        yield Cluster(url, recording, rows)


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["pipeline", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_elections_of_a_live_cluster_equal_the_walk(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    last = str(cluster.rows[-1].zxid)
    words = ("--admin", cluster.url, "--until", last, "--format", "json")
    code, out, _ = ask(capsys, "elections", "--each", *words)
    answer = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [
        tuple(value for name, value in row.items() if name != "ts") for row in answer
    ] == oracle.elections(cluster.rows)
    assert len([row for row in answer if row["latency_ms"] is not None]) >= 1


def test_a_recording_and_its_cluster_give_the_same_answer(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    last = str(cluster.rows[-1].zxid)
    live = ask(capsys, "flapping", "--admin", cluster.url, "--until", last)
    recorded = ask(capsys, "flapping", "--input", str(cluster.recording), "--until", last)
    assert live == recorded and live[0] == 0
    assert "REGISTRATIONS" in live[1]


def test_a_live_cluster_breaks_no_invariant(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(capsys, "invariants", "--admin", cluster.url)[:2] == (0, "no rows\n")


def test_a_finding_is_exit_code_1(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = cluster.recording.read_text().splitlines()
    at = next(
        number
        for number, line in enumerate(lines)
        if '"/brokers/generations/' in line and '"/brokers/ids/' in line
    )
    transaction = json.loads(lines[at])
    transaction["changes"] = [each for each in transaction["changes"] if "generations" not in each["path"]]
    lines[at] = json.dumps(transaction)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join(lines))
    code, out, _ = ask(capsys, "invariants", "--input", str(broken))
    assert code == 1
    assert "registered without recording its generation" in out and f" {transaction['zxid']} " in out


def test_leader_at_tells_who_led_before_the_loss(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = next(row for row in cluster.rows if row.path.startswith("/brokers/ids/") and row.op == "d")
    before = oracle.cluster_at(cluster.rows, lost.zxid - 1)
    [led] = [row for row in before if row[1] == "orders-0"]
    for at in (("--zxid", str(lost.zxid - 1)), ("--time", lost.ts.replace(tzinfo=None).isoformat())):
        code, out, _ = ask(
            *(capsys, "leader_at", "--topic", "orders", "--partition", "0", "--admin", cluster.url),
            *("--format", "csv", *at),
        )
        assert code == 0
        assert out.splitlines()[1].split(",")[:3] == ["partition", "orders-0", str(led[2])]


def test_answers_and_pictures_go_to_files(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def written(job: str, form: str, *more: str) -> DataFrame:
        words = ["--input", str(cluster.recording), "--format", form, "--out", str(tmp_path / form)]
        assert ask(capsys, job, *words, *more)[0] == 0
        return spark.read.option("header", True).format(form).load(str(tmp_path / form))

    picture = tmp_path / "isr.html"
    answer = written("isr_history", "parquet", "--picture", str(picture)).collect()
    assert sorted(map(tuple, answer)) == oracle.isr_history(cluster.rows)
    assert "orders-0" in picture.read_text()
    counts = written("flapping", "json").select("broker", "registrations", "bounces").collect()
    assert sorted(map(tuple, counts)) == sorted(row[:3] for row in oracle.flapping(cluster.rows))
    summary = json.loads((tmp_path / "json" / "_job.json").read_text())
    assert (summary["job"], summary["rows"], summary["finding"]) == ("flapping", len(counts), False)
    stays = sum(row[1] for row in counts)
    assert len(summary["bars"]) == stays and {bar["kind"] for bar in summary["bars"]} == {"registered"}
    assert all(bar["from_ms"] <= bar["until_ms"] for bar in summary["bars"])
    replicas = written("leader_at", "csv", "--all").where("name = 'orders-0'").collect()[0].replicas
    assert sorted(replicas.split(",")) == ["1", "2", "3"]
    words = ("--input", str(cluster.recording), "--format", "json", "--out", str(tmp_path / "json"))
    code, _, err = ask(capsys, "flapping", *words)
    assert code == 2 and "--out" in err and "exists" in err


def test_every_job_that_draws_draws(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for job, word in (("elections", "clean"), ("controller_timeline", "epoch 1"), ("flapping", "generation")):
        picture = tmp_path / f"{job}.html"
        assert ask(capsys, job, "--input", str(cluster.recording), "--picture", str(picture))[0] == 0
        assert word in picture.read_text()


def test_follow_answers_anew_and_resumes(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["controller_timeline", "--admin", cluster.url, "--follow", "--every", "1", "--format", "json"]
    words += ["--checkpoint", str(tmp_path / "checkpoint")]

    def stop_after_an_answer() -> None:
        eventually(lambda: any(query.lastProgress for query in spark.streams.active), DEADLINE_S)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()

    for _ in range(2):
        stopper = threading.Thread(target=stop_after_an_answer)
        stopper.start()
        code, out, err = ask(capsys, *words)
        stopper.join(DEADLINE_S)
        assert (code, err) == (0, "")
        if out:
            answer = [json.loads(line) for line in out.splitlines()]
            epochs = [row["controller_epoch"] for row in answer]
            assert epochs[-1] == oracle.controller_timeline(cluster.rows)[-1][0]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("elections", "--input", "no/such"), 2, "--input = 'no/such': does not exist"),
        (("elections", "--follow", "--input", "x"), 2, "a recorded history does not grow"),
        (("elections", "--from", "9", "--until", "3"), 2, "--from = 9: is behind --until"),
        (("elections", "--from", "yesterday"), 2, "neither a zxid nor a time"),
        (("elections", "--format", "parquet"), 2, "--format = 'parquet'"),
        (("elections", "--out", "x"), 2, "--out = 'x'"),
        (("elections", "--picture", "x.png"), 2, "--picture = 'x.png'"),
        (("leader_at", "--topic", "t"), 2, "give --topic and --partition, or --all"),
        (("leader_at", "--all", "--time", "5"), 2, "--time = 5"),
        (("elections", "--admin", "https://x"), 2, "option --admin = 'https://x': 'https://x' is not http"),
        (("elections", "--until", "1" * 19), 2, f"option --until = '{'1' * 19}': is not such a number"),
        (("no_such_job",), 2, "invalid choice: 'no_such_job'"),
        (("elections", "--admin", "http://127.0.0.1:1"), 1, "remedy: name running nodes with --admin"),
        (("audit", "--bootstrap", "127.0.0.1:1", "--admin", "http://127.0.0.1:1"), 1, "with --admin"),
    ],
)
def test_what_cannot_be_done_is_two_lines(
    spark: SparkSession, words: tuple[str, ...], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(capsys, *words)
    assert (answer[0], answer[1]) == (code, "")
    assert told in answer[2]
    assert answer[2].startswith("error: ") and "Traceback" not in answer[2] and answer[2].count("\n") <= 2


def test_a_transaction_that_is_not_there_yet_is_named_with_the_jobs_option(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--from", "--until"):
        code, out, err = ask(capsys, "flapping", "--admin", cluster.url, option, "999999")
        assert (code, out) == (2, "")
        assert f"option {option} = 999999: the newest transaction is " in err


def test_a_damaged_recording_names_file_and_line(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = cluster.recording.read_text().splitlines()
    for damage in (lines[4][:40], '{"zxid": 3}', lines[4].replace('"after":"', '"after":"*', 1)):
        damaged = tmp_path / "damaged.jsonl"
        damaged.write_text("\n".join([*lines[:4], damage, *lines[5:]]))
        code, out, err = ask(capsys, "flapping", "--input", str(damaged))
        assert (code, out) == (1, "")
        assert f"{damaged} line 5: " in err and "remedy: " in err


def test_a_partition_that_did_not_exist_is_an_error(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("leader_at", "--topic", "orders", "--partition", "9", "--input", str(cluster.recording))
    code, _, err = ask(capsys, *words)
    assert code == 1 and "partition orders-9 is not in the history" in err


@pytest.fixture
def own_process(tmp_path: Path) -> dict[str, str]:
    """The environment of a job that starts a Spark of its own, which lives as long as the test."""
    folder = tmp_path / "conf"
    folder.mkdir()
    settings = {**SHORT_LIVED, **SMALL_PLANS}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {**os.environ, "SPARK_CONF_DIR": str(folder)}


def test_a_job_of_its_own_process_fails_in_two_lines(own_process: dict[str, str], tmp_path: Path) -> None:
    damaged = tmp_path / "history.parquet"
    damaged.write_text("no parquet")
    words = [sys.executable, "-m", "pipeline.jobs.flapping", "--input", str(damaged)]
    ended = subprocess.run(
        words, env=own_process, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    # What the JVM itself says about Spark's options comes first.
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("WARNING: ")]
    assert (ended.returncode, ended.stdout, len(lines)) == (1, "", 2), ended.stderr
    assert lines[0].startswith("error: ") and str(damaged) in lines[0] and lines[1].startswith("remedy: ")


def test_follow_ends_quietly_with_an_interrupt(own_process: dict[str, str], cluster: Cluster) -> None:
    words = [sys.executable, "-m", "quorum", "pipeline", "controller_timeline", "--admin", cluster.url]
    words += ["--follow", "--every", "1", "--format", "json"]
    # A session of its own: the terminal interrupts Spark's JVM and workers as well.
    with subprocess.Popen(
        words,
        env=own_process,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as following:
        assert following.stdout is not None
        answer = json.loads(following.stdout.readline())
        os.killpg(following.pid, signal.SIGINT)
        _, err = following.communicate(timeout=DEADLINE_S)
    assert answer["controller_epoch"] >= 1
    lines = [line for line in err.splitlines() if not line.startswith("WARNING: ")]
    assert (following.returncode, lines) == (0, []), err


def test_a_missing_extra_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "plotly" else found(name))
    code, _, err = ask(capsys, "elections", "--input", "x")
    assert code == 2 and "plotly is not installed" in err and "pip install 'quorate[spark]'" in err
