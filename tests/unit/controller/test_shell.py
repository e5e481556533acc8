"""What reaches the controller's machine of what a client says."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import cast

import pytest

from controller.core.effects import Effect, ReadNodes, Resign
from controller.core.inputs import Ended, Input, PathsChanged, Reconnected
from controller.core.machine import ControllerMachine
from controller.runtime.senders import Senders, TermShare
from controller.runtime.shell import Shell
from quorum.client import Client, ClientState, EventType, WatchEvent
from tests.support.stepped_controller import ELECTED


class ScriptedClient:
    """Says what a test wants."""

    state = ClientState.CLOSED

    def __init__(self) -> None:
        self.tell: Callable[[WatchEvent], None] = lambda _event: None
        self.become: Callable[[ClientState], None] = lambda _state: None

    def add_listener(self, listener: Callable[[ClientState], None]) -> None:
        self.become = listener

    def remove_listener(self, _listener: object) -> None:
        """Nobody listens any more."""

    async def add_watch(self, _path: str, tell: Callable[[WatchEvent], None], **_kind: bool) -> None:
        self.tell = tell


class NotingMachine:
    """Notes its inputs, and resigns at the end."""

    step_under_way = None
    wake_ms = None

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.has_begun = asyncio.Event()

    def step(self, event: Input, _now_ms: int) -> list[Effect]:
        self.inputs.append(event)
        self.has_begun.set()
        return [Resign(event.reason)] if isinstance(event, Ended) else []


class LosingMachine(NotingMachine):
    """Wants to read, and resigns in the same step."""

    def step(self, event: Input, now_ms: int) -> list[Effect]:
        super().step(event, now_ms)
        return [ReadNodes(1, ("/a",)), Resign("lost")]


def test_events_in_a_row_are_one_input_and_overtake_no_other() -> None:
    client, machine = ScriptedClient(), NotingMachine()

    def fire(path: str, kind: EventType = EventType.NODE_DATA_CHANGED) -> None:
        client.tell(WatchEvent(kind, path, 1))

    async def play() -> None:
        shell = Shell(
            cast("Client", client),
            ELECTED,
            cast("ControllerMachine", machine),
            lambda _put, _fail: Senders(cast("TermShare", None)),
        )
        running = asyncio.create_task(shell.run())
        await machine.has_begun.wait()
        fire("/a")
        fire("/b", EventType.NODE_CREATED)
        fire("/watched", EventType.PERSISTENT_WATCH_REMOVED)
        client.become(ClientState.CONNECTED)
        fire("/a")
        shell.end("enough")
        assert await running == "enough"

    asyncio.run(play())
    assert machine.inputs == [
        ELECTED,
        PathsChanged(["/a", "/b"]),
        Reconnected(),
        PathsChanged(["/a"]),
        Ended("enough", is_fenced=True),
    ]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_term_that_ends_at_once_leaves_nothing_begun() -> None:
    """A read that has not taken its first step is as if it was never made."""
    client, machine = ScriptedClient(), LosingMachine()

    async def play() -> None:
        shell = Shell(
            cast("Client", client),
            ELECTED,
            cast("ControllerMachine", machine),
            lambda _put, _fail: Senders(cast("TermShare", None)),
        )
        assert await shell.run() == "lost"

    asyncio.run(play())
    gc.collect()
