"""What is sent to a service manager, and what happens where it does not take it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from quorum.platform.service_manager import ServiceManager, telling
from tests.support.controlled_cluster import until
from tests.support.service_manager import NotifySocket


def test_nothing_is_sent_where_nobody_asks() -> None:
    manager = ServiceManager({})
    assert not manager.listens
    assert not manager.tell(READY="1")
    assert manager.watchdog_s == 0


def test_assignments_are_lines_of_one_message(tmp_path: Path) -> None:
    with NotifySocket(tmp_path / "notify") as notify:
        assert ServiceManager({"NOTIFY_SOCKET": str(notify.path)}).tell(READY="1", STATUS="two\nlines")
        assert notify.told() == ["READY=1", "STATUS=two lines"]


def test_an_abstract_name_begins_with_an_at() -> None:
    name = f"quorate-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(f"\0{name}")
        assert ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).tell(READY="1")
        assert notify.recv(100) == b"READY=1"


def test_a_socket_that_is_not_there_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nowhere")})
    assert not manager.tell(READY="1")
    assert not manager.tell(READY="1")
    assert [each.message for each in caplog.records] == [
        "NOTIFY_SOCKET: the service manager cannot be told: No such file or directory"
    ]


def test_a_full_socket_takes_the_same_later(tmp_path: Path) -> None:
    with NotifySocket(tmp_path / "notify") as notify:
        manager = ServiceManager({"NOTIFY_SOCKET": str(notify.path)})
        count = 0
        while manager.tell(STATUS=str(count)):
            count += 1
        assert len(notify.told()) == count
        assert manager.tell(READY="1")


@pytest.mark.parametrize(("pid", "expected"), [("", 30.0), ("own", 30.0), ("1", 0.0)])
def test_a_watchdog_is_fed_by_the_process_that_it_names(pid: str, expected: float) -> None:
    named = {"WATCHDOG_PID": str(os.getpid()) if pid == "own" else pid} if pid else {}
    environment = {"WATCHDOG_USEC": "30000000", **named}
    assert ServiceManager(environment).watchdog_s == expected


async def test_an_error_that_ends_the_news_is_logged_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without news systemd ends the process after WatchdogSec, and nothing else would say why."""

    def readiness() -> tuple[bool, str]:
        raise ValueError("no such member")

    with NotifySocket(tmp_path / "notify") as notify:
        monkeypatch.setenv("NOTIFY_SOCKET", str(notify.path))
        async with telling(readiness):
            await until(lambda: caplog.records, "the error is logged while the server runs")
        assert notify.told() == ["STOPPING=1", "STATUS=stops"]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no such member"
