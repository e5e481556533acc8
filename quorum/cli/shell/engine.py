"""The shell's terminal and event loop: one command and out, or a prompt until the end.

The client lives in an event loop on a thread of its own, so that a prompt that waits for keys does not keep
pings from leaving, and the session with its ephemerals stays alive between commands. Ctrl-C ends the running
command, not the shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

from quorum.cli.shell import render
from quorum.cli.shell.commands import SUMMARIES, Command, Help, Quit, help_text, parse, split_line
from quorum.cli.shell.execute import execute
from quorum.client import Client, ClientState
from quorum.config.logins import PROVING
from quorum.errors import QuorateError, UsageError, printable
from quorum.platform.tls import DIALLING

T = TypeVar("T")

Prove = Callable[[Client], Awaitable[None]]

PROMPT: Final = "quorate> "
CONNECT_PATIENCE_MS: Final = 5_000.0
SESSION_TIMEOUT_MS: Final = 10_000
COMPLETION_PATIENCE_S: Final = 1.0


def run(hosts: str, command: Sequence[str], as_json: bool = False, prove: Prove | None = None) -> int:
    """Run one command, or ask for commands when there is none.

    Args:
        hosts: client ports of the quorum, "host:port,host:port".
        command: words of one command; empty for the interactive shell.
        as_json: print results as JSON, as --json after a command does.
        prove: proves something for every client before it is used.

    Returns:
        The exit code: 0; 130 when a single command was interrupted.
    """
    words = list(command)
    while words and words[0] == "--json":
        as_json = True
        del words[0]
    if not words:
        return _interact(hosts, as_json, prove)
    parsed = parse(words)
    if isinstance(parsed.command, Help):
        _print(render.explained(help_text(parsed.command.topic)), as_json or parsed.as_json)
        return 0
    with _connected(hosts, prove) as terminal:
        try:
            terminal.execute(parsed.command, as_json or parsed.as_json)
        except KeyboardInterrupt:
            return 130
    return 0


class _Terminal:
    """A client on a loop thread, and the way from the terminal to it and back."""

    def __init__(self, hosts: str, prove: Prove | None) -> None:
        self._hosts = hosts
        # Here, for the client belongs to another thread.
        self._tls, self._sasl = DIALLING.get(), PROVING.get()
        self._prove = prove
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="quorum client", daemon=True)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def open(self) -> None:
        """Start the loop and connect."""
        self._thread.start()
        self._client = self.call(self._connect())

    def close(self) -> None:
        """End the session and the loop."""
        try:
            if self._client is not None:
                self.call(self._client.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def reopen(self) -> None:
        """Replace a client whose session is lost."""
        self.call(self.client.close())
        self._client = self.call(self._connect())
        self.follow_state()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop thread and wait for it; an interruption cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except (KeyboardInterrupt, TimeoutError):
            future.cancel()
            raise

    def execute(self, command: Command, as_json: bool) -> None:
        """Run a command and print its results."""
        self.call(execute(self.client, command, lambda output: _print(output, as_json)))

    def follow_state(self) -> None:
        """Tell on the terminal when the connection goes and comes."""
        self._loop.call_soon_threadsafe(self.client.add_listener, _tell_state)

    def complete_path(self, text: str) -> list[str]:
        """List the paths that begin with a text; none when the quorum does not answer at once."""
        parent, _, _ = text.rpartition("/")
        try:
            names = self.call(self.client.get_children(parent or "/"), COMPLETION_PATIENCE_S)
        except (QuorateError, TimeoutError):
            return []
        return sorted(path for name in names if (path := f"{parent}/{name}").startswith(text))

    async def _connect(self) -> Client:
        try:
            client = Client(
                self._hosts, session_timeout_ms=SESSION_TIMEOUT_MS, tls=self._tls, sasl=self._sasl
            )
        except ValueError as error:
            raise UsageError(str(error), "write --hosts host:port,host:port") from error
        await client.start(CONNECT_PATIENCE_MS)
        if self._prove is not None:
            try:
                await self._prove(client)
            except BaseException:
                await client.close()
                raise
        return client


@contextlib.contextmanager
def _connected(hosts: str, prove: Prove | None) -> Iterator[_Terminal]:
    terminal = _Terminal(hosts, prove)
    try:
        terminal.open()
        yield terminal
    finally:
        terminal.close()


def _interact(hosts: str, as_json: bool, prove: Prove | None) -> int:
    typed = sys.stdin.isatty()
    failed = False
    with _connected(hosts, prove) as terminal:
        terminal.follow_state()
        if typed:
            _enable_completion(terminal)
            session_id = terminal.client.session_id & (2**64 - 1)
            _say(f"session 0x{session_id:x}; `help` lists the commands, Ctrl-D leaves")
        while True:
            try:
                line = input(PROMPT if typed else "")
                if not line.strip():
                    continue
                parsed = parse(split_line(line))
                if isinstance(parsed.command, Quit):
                    break
                terminal.execute(parsed.command, as_json or parsed.as_json)
            except EOFError:
                break
            except KeyboardInterrupt:
                _say("")
            except QuorateError as error:
                failed = True
                _say(f"error: {error.message}")
                if error.remedy:
                    _say(f"remedy: {error.remedy}")
                if terminal.client.state is ClientState.LOST:
                    terminal.reopen()
                    _say("a new session was opened; ephemeral nodes of the old one are gone")
    # A person has seen the error; a script has only the exit code.
    return 1 if failed and not typed else 0


def _enable_completion(terminal: _Terminal) -> None:
    try:
        import readline  # noqa: PLC0415 - importing it changes how input() behaves, which only a prompt wants
    except ImportError:
        return
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            names = [name for name in SUMMARIES if name.startswith(text)]
            found[:] = terminal.complete_path(text) if text.startswith("/") else names
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" \t\n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _tell_state(state: ClientState) -> None:
    if state is not ClientState.CLOSED:
        _say(
            f"the connection is {state.value}" if state is not ClientState.LOST else "the session has expired"
        )


def _print(output: render.Output, as_json: bool) -> None:
    text = render.as_json(output) if as_json else output.text
    if sys.stdout.isatty():
        # Names and data are what any client wrote. A file or a pipe gets them as they are.
        text = printable(text, kept="\n\t")
    if text:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _say(line: str) -> None:
    # What an error names may come from the server; a usage has several lines.
    sys.stderr.write(printable(line, kept="\n\t") + "\n")
    sys.stderr.flush()
