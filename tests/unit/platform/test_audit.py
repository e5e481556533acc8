"""The audit log's file: what a line says, rotation, and lines that the disk does not take."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from quorum.errors import ConfigError
from quorum.platform import audit
from quorum.platform.audit import ALLOWED, DENIED, AuditLog
from tests.support.nodes import eventually

DEADLINE_S = 20.0


def opened(path: Path, *, file_bytes_max: int = 1 << 20, files_max: int = 3) -> AuditLog:
    return AuditLog(path, file_bytes_max=file_bytes_max, files_max=files_max)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_line_has_the_keys_that_are_promised(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = opened(path)
    log.start()
    log.write("sasl:eve,ip:127.0.0.1", "127.0.0.1:9", "setData", '/ä\n"', ALLOWED, request=7, session="0x1f")
    log.write("User:dave", "127.0.0.1", "Write", "Topic:LITERAL:a", DENIED)
    log.stop()
    first, second = lines(path)
    assert list(first) == [
        *("time", "principal", "address", "operation", "resource", "outcome", "request", "session")
    ]
    assert first["resource"] == '/ä\n"'
    assert (first["request"], first["session"]) == (7, "0x1f")
    assert (second["request"], second["session"], second["outcome"]) == (None, None, "denied")
    assert first["time"].endswith("Z")
    assert len(first["time"]) == len("2026-01-01T00:00:00.000Z")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert log.written_count == 2


def test_events_before_the_start_are_written(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.log")
    log.write("", "", "early", "", ALLOWED)
    log.start()
    log.stop()
    assert [each["operation"] for each in lines(tmp_path / "audit.log")] == ["early"]


def test_files_are_rotated_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = opened(path, file_bytes_max=1000, files_max=2)
    log.start()
    for number in range(40):
        log.write("", "", "setData", f"/{number}", ALLOWED)
    log.stop()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    paths = [tmp_path / name for name in reversed(names)]
    assert all(each.stat().st_size <= 1000 for each in paths)
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in paths)
    kept = [each["resource"] for path in paths for each in lines(path)]
    assert kept == [f"/{number}" for number in range(40 - len(kept), 40)]


def test_what_finds_the_queue_full_is_counted_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LINES_MAX", 5)
    path = tmp_path / "audit.log"
    log = opened(path)
    for number in range(8):
        log.write("", "", "setData", f"/{number}", ALLOWED)
    assert log.lost_count == 3
    log.start()
    log.stop()
    first, *others = lines(path)
    assert (first["operation"], first["resource"], first["outcome"]) == (
        *("auditLog", "3 lines are lost"),
        "failed",
    )
    assert [each["resource"] for each in others] == [f"/{number}" for number in range(5)]


def test_a_disk_that_fails_costs_lines_that_are_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "RETRY_S", 0.01)
    path = tmp_path / "audit.log"
    log = opened(path)
    log.start()
    log.write("", "", "setData", "/before", ALLOWED)
    eventually(lambda: log.written_count == 1, DEADLINE_S)
    write, fails = os.write, True

    def half(file: int, data: bytes) -> int:
        if fails:
            # The disk takes the beginning, and is full then.
            write(file, bytes(data)[:5])
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", half)
    with caplog.at_level(logging.WARNING, "quorate.audit"):
        log.write("", "", "setData", "/lost", ALLOWED)
        eventually(lambda: log.lost_count == 1, DEADLINE_S)
        assert "1 lines of the audit log" in caplog.text
        assert "No space left" in caplog.text
    fails = False
    log.write("", "", "setData", "/after", ALLOWED)
    log.stop()
    found = lines(path)
    assert {each["resource"] for each in found} == {"/before", "1 lines are lost", "/after"}
    assert log.lost_count == 1


def test_a_line_that_a_crash_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"time": "20')
    path.chmod(0o644)
    log = opened(path)
    log.start()
    log.write("", "", "setData", "/a", ALLOWED)
    log.stop()
    cut, whole = path.read_text().splitlines()
    assert cut == '{"time": "20'
    assert json.loads(whole)["resource"] == "/a"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.log")
    log.start()
    log.write("", "", "setData", "x" * 10_000, ALLOWED)
    log.stop()
    (line,) = lines(tmp_path / "audit.log")
    assert line["resource"].endswith("… (10000 characters)")
    assert len(line["resource"]) < 9000


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "none" / "a.log", "No such file")):
        with pytest.raises(ConfigError) as caught:
            opened(path).start()
        assert caught.value.problems[0].field == "audit.file"
        assert said in caught.value.message
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path / "fifo").start()
    assert "is no regular file" in caught.value.message
    # It may be a device, whose mode is others' business.
    (tmp_path / "fifo").chmod(0o666)
    with pytest.raises(ConfigError):
        opened(tmp_path / "fifo").start()
    assert (tmp_path / "fifo").stat().st_mode & 0o777 == 0o666
