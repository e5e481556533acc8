"""`quorate serve` from within: what ends the process."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import pytest

from quorum.cli.commands.serve import _serve
from quorum.errors import NodeStoppedError
from quorum.raft.journal.writer import JournalWriter
from tests.support.node_configs import loopback_configs


async def test_an_exception_that_leaves_a_callback_of_the_loop_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = JournalWriter._complete

    def break_in_a_callback(self: JournalWriter, *arguments: Any, inline: bool) -> None:
        if not inline:
            raise ZeroDivisionError("planned")
        complete(self, *arguments, inline=inline)

    monkeypatch.setattr(JournalWriter, "_complete", break_in_a_callback)
    options = argparse.Namespace(bootstrap=True, join=False, force_new_cluster=False, parent_fd=None)
    with pytest.raises(NodeStoppedError, match="planned"):
        await asyncio.wait_for(_serve(loopback_configs(tmp_path, 1)[0], options), 30.0)
