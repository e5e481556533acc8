"""What the supervisor of a local quorum survives: a full disk below its logs, a node that does not start."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from pathlib import Path

import pytest

from quorum.errors import NodeStoppedError
from quorum.layout import plan, write
from quorum.process_logs import bound_log, story_since
from quorum.supervisor import Supervisor
from quorum.terminal import Console

#: a file that takes nothing, for want of room
FULL = Path("/dev/full")
DEADLINE_S = 20.0


def test_a_log_is_cut_once_it_is_too_long_and_its_older_part_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    bound_log(log)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * 100)
        bound_log(log, bytes_max=100)
        assert log.stat().st_size == 100
        writer.write(b"y")
        bound_log(log, bytes_max=100)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "node.log.1").read_bytes() == b"x" * 100 + b"y"


def test_a_log_whose_older_part_finds_no_room_is_cut_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_bytes(b"x" * 101)
    older = tmp_path / "node.log.1"
    older.symlink_to(FULL)
    bound_log(log, bytes_max=100)
    assert log.read_bytes() == b""
    assert not older.is_symlink()


def test_a_log_that_was_moved_away_tells_nothing(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    assert story_since(log, 0) == ""
    log.write_text("an older life\nerror: no\nremedy: do\nthe end\n")
    assert story_since(log, 14) == "error: no\nremedy: do"
    assert story_since(log, 1 << 20) == "error: no\nremedy: do"


class Refusing(io.StringIO):
    """A stream whose file takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


def test_news_that_a_full_disk_does_not_take_ends_nothing() -> None:
    Console(Refusing(errno.ENOSPC)).say("node 1 is ready")
    Console(Refusing(errno.EDQUOT)).say("node 1 is ready")
    with pytest.raises(BrokenPipeError):
        Console(Refusing(errno.EPIPE)).say("node 1 is ready")


def test_a_node_whose_process_cannot_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, dict.fromkeys(("client", "peer", "admin")))
    write(layout)
    # No file can be opened there, as where the disk has no room for one.
    layout.nodes[0].log_file.mkdir()
    news = io.StringIO()
    supervisor = Supervisor(layout, Console(news))
    with pytest.raises(NodeStoppedError, match=r"cannot be started: .*Is a directory"):
        asyncio.run(supervisor.run(lambda _start: None, deadline_s=DEADLINE_S))
    assert "node 1 cannot be started" in news.getvalue()
    assert "trying again in 0.5 s" in news.getvalue()
