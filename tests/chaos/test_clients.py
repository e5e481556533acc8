"""A client's process that ends or stops has a successor; a stopped one comes back for its last life."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.clients import Client
from tests.chaos.recorder import Recorder
from tests.support.nodes import eventually

DEADLINE_S = 30.0
#: Prints an invocation with its number; answers each line of its input, and ends after one.
SCRIPT = """
import json, sys
_, name, number, _ = sys.argv
def say(kind):
    line = {"process": name, "operation": "live", "key": "k", "argument": number, "type": kind}
    print(json.dumps(line | {"result": None, "time_ns": 1, "zxid": 0, "node": ""}), flush=True)
say("invoke")
for _ in sys.stdin:
    say("ok")
    break
"""


@contextmanager
def running(tmp_path: Path, script: str = SCRIPT) -> Iterator[tuple[Client, Recorder, Callable[[], None]]]:
    recorder = Recorder(tmp_path / "history")
    client = Client("c", ("-c", script), recorder, tmp_path / "c.log", seed=1)
    stopping, failures = threading.Event(), []

    def run() -> None:
        try:
            client.run(stopping)
        except AssertionError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def end() -> None:
        stopping.set()
        thread.join()
        recorder.close()
        for each in failures:
            raise each

    try:
        yield client, recorder, end
    finally:
        stopping.set()
        thread.join()


def types(tmp_path: Path, number: int) -> list[str]:
    path = tmp_path / "history" / f"c-{number}.jsonl"
    return [json.loads(line)["type"] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_killed_process_has_a_successor(tmp_path: Path) -> None:
    with running(tmp_path) as (client, recorder, end):
        eventually(lambda: recorder.under_way, DEADLINE_S, "the first began")
        client.present.process.kill()
        eventually(lambda: client.number == 2 and recorder.under_way, DEADLINE_S, "the second began")
        end()
    assert [types(tmp_path, number) for number in (1, 2)] == [["invoke"], ["invoke"]]


def test_a_stopped_process_comes_back_for_its_last_life(tmp_path: Path) -> None:
    with running(tmp_path) as (client, recorder, end):
        eventually(lambda: recorder.under_way, DEADLINE_S, "the first began")
        first = client.present
        os.kill(first.process.pid, signal.SIGSTOP)
        eventually(lambda: client.number == 2, DEADLINE_S, "the second began")
        eventually(lambda: first.ended, DEADLINE_S, "the first came back and ended")
        end()
    assert types(tmp_path, 1) == ["invoke", "ok"]


def test_a_process_that_fails_fails_the_run(tmp_path: Path) -> None:
    with running(tmp_path, "import sys; sys.exit('what went wrong')") as (client, _, end):
        eventually(lambda: client.number == 1, DEADLINE_S, "it began")
        with pytest.raises(AssertionError, match="what went wrong"):
            end()
