"""Which commands a start offers, and how they are written; that they work is for test_up.py to see."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from quorum.cli.main import build_parser
from quorum.launcher.layout import DEFAULT_PORTS, Layout, plan
from quorum.launcher.trying import program_now, things_to_try


def layout(tmp_path: Path, *, brokers: int = 3, founded: bool = False, **ports: int) -> Layout:
    return replace(plan(tmp_path / "data", 3, brokers, DEFAULT_PORTS | ports), founded=founded)


@pytest.mark.parametrize("brokers", [0, 2])
@pytest.mark.parametrize("founded", [False, True])
def test_three_commands_are_offered_that_exist(tmp_path: Path, brokers: int, founded: bool) -> None:
    lines = things_to_try(layout(tmp_path, brokers=brokers, founded=founded, client=3000), "quorate")
    assert len(lines) == 3
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "quorate"
        build_parser().parse_args(words)


def test_default_ports_are_not_named(tmp_path: Path) -> None:
    assert things_to_try(layout(tmp_path), ".venv/bin/quorate") == [
        ".venv/bin/quorate topics create hello --partitions 6 --replication-factor 3",
        ".venv/bin/quorate top",
        ".venv/bin/quorate shell ls /brokers/topics",
    ]


def test_other_ports_are_named(tmp_path: Path) -> None:
    found = things_to_try(layout(tmp_path, brokers=2, client=3000, admin=4000, broker=5000), "quorate")
    made, top, listed = found
    assert made.endswith("--replication-factor 2 --bootstrap 127.0.0.1:5000,127.0.0.1:5001")
    assert top.endswith(" --admin http://127.0.0.1:4000,http://127.0.0.1:4001,http://127.0.0.1:4002")
    assert listed.endswith(" --hosts 127.0.0.1:3000,127.0.0.1:3001,127.0.0.1:3002 ls /brokers/topics")


def test_a_cluster_that_ran_before_has_its_topic(tmp_path: Path) -> None:
    assert things_to_try(layout(tmp_path, founded=True), "quorate")[0] == "quorate topics list"


def test_the_program_is_the_one_that_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my bin"
    folder.mkdir()
    program = folder / "quorate"
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_now([str(program)]) == "'my bin/quorate'"
    monkeypatch.chdir("/")
    assert program_now([str(program)]) == shlex.quote(str(program)[1:])
    monkeypatch.setenv("PATH", str(folder))
    assert program_now([str(program)]) == "quorate"
    assert program_now(["/lib/quorum/__main__.py"]) == f"{shlex.quote(sys.executable)} -P -m quorum"
