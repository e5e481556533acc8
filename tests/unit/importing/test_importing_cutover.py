"""The cutover of a live source that changes while it is read for the last time.

Source and target hold their trees in this process; the rounds between them are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from quorum.core.acl import OPEN_ACL
from quorum.core.importing import ImportedNode, ImportedNumbers, walk
from quorum.importing import running
from quorum.importing.errors import ImportFailedError
from quorum.importing.running import Wanted, run_import
from quorum.importing.source import LiveSource, NodeFound
from tests.unit.core.driver import Driver

WANTED = Wanted("zk:2181", None, (), ["http://nobody:1"], cutover=True, quiet_s=0.0, timeout_s=60.0)
NUMBERS = ImportedNumbers(1, 1, 1, 1, 1, 0, 0, 0)


class Source(LiveSource):
    """A source with one znode beside the root."""

    def __init__(self, after_reading: Callable[[Source, int], None]) -> None:
        super().__init__("zk:2181", ())
        self._after_reading = after_reading
        self.readings = 0
        self.last_zxid = 5
        self.node = ImportedNode("/a", b"", OPEN_ACL, NUMBERS)

    @property
    def zxid(self) -> int:
        return self.last_zxid

    def set_acl(self) -> None:
        """Set the access list, of which no watch tells."""
        self.last_zxid += 1
        numbers = self.node.numbers._replace(aversion=self.node.numbers.aversion + 1)
        self.node = self.node._replace(acl=((1, "world", "anyone"),), numbers=numbers)

    async def start(self) -> None:
        pass

    async def catch_up(self) -> None:
        pass

    async def walk(self) -> AsyncIterator[NodeFound]:
        self.readings += 1
        yield NodeFound(ImportedNode("/", b"", OPEN_ACL, NUMBERS), ("a",), 0)
        yield NodeFound(self.node, (), 0)
        self._after_reading(self, self.readings)


class Target:
    """A target that is a machine of this process."""

    def __init__(self) -> None:
        self.driver = Driver()

    async def write(self, floor: int, changes: list[Any]) -> int:
        return self._step("write", floor, changes)

    async def open(self, floor: int) -> int:
        return self._step("open", floor, None)

    def _step(self, kind: str, floor: int, changes: list[Any] | None) -> int:
        floor = 0 if kind == "begin" else max(floor, self.driver.machine.transaction.import_floor + 1)
        result = self.driver.import_step(kind, "zk:2181", floor, changes)
        assert result.err == 0, result
        zxid: int = result.zxid
        return zxid

    async def listing(self) -> dict[str, str]:
        self._step("begin", 0, None)
        return {node.path: node.digest().hex() for node in walk(self.driver.machine.tree)}


async def cut_over(
    monkeypatch: pytest.MonkeyPatch, source: Source, timeout_s: float = 60.0
) -> tuple[Target, Mapping[str, object]]:
    """Carry out a cutover; returns the target and the last line of the report."""
    target, lines = Target(), list[Mapping[str, object]]()
    monkeypatch.setattr(running, "LiveSource", lambda *_: source)
    monkeypatch.setattr(running, "ImportTarget", lambda *_: target)
    await run_import(WANTED._replace(timeout_s=timeout_s), lines.append, asyncio.Event())
    return target, lines[-1]


async def test_an_access_list_that_is_set_during_the_last_reading_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first reading copies, the second one is the last if nothing changes.
    source = Source(lambda source, reading: source.set_acl() if reading == 2 else None)
    target, report = await cut_over(monkeypatch, source)
    assert source.readings == 3
    [_, node] = walk(target.driver.machine.tree)
    assert node.acl == source.node.acl
    assert (report["phase"], report["source_zxid"]) == ("done", source.zxid)


async def test_a_source_that_changes_during_every_reading_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(lambda source, _: source.set_acl())
    with pytest.raises(ImportFailedError, match="still changes after 0 s"):
        await cut_over(monkeypatch, source, timeout_s=0.0)


async def test_an_interrupt_while_the_target_is_opened_leaves_unknown_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = asyncio.Event()

    async def opened_and_not_answered(_target: Target, _floor: int) -> None:
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Target, "open", opened_and_not_answered)
    monkeypatch.setattr(running, "LiveSource", lambda *_: Source(lambda *_: None))
    monkeypatch.setattr(running, "ImportTarget", lambda *_: Target())
    with pytest.raises(ImportFailedError, match="whether it is open is unknown"):
        await run_import(WANTED, lambda _: None, stop)
