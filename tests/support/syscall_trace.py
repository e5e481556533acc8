"""System calls of running processes, recorded by one strace and read back as events in their order.

One strace for all processes gives one order of their events that no clock is needed for: a traced thread
stands still at the entry and the exit of a call until strace has noted it, so whatever a process does because
a call returned, in whatever process, is noted after that return.

Knows the output of strace -f -yy -xx and nothing of what the bytes mean. Source: strace(1), ptrace(2).
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.nodes import eventually, tail

#: Calls that write to files and sockets, and those that make files and names durable.
CALLS = (
    *("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg"),
    *("fdatasync", "fsync", "rename", "renameat", "renameat2", "ftruncate"),
)
#: Longer than any buffer that is written at once: a cut one cannot be decoded.
_BUFFER_BYTES_MAX = 64 * 1024 * 1024
_DEADLINE_S = 20.0

_LINE = re.compile(r"(\d+) +(.*)", re.DOTALL)
_BEGUN = re.compile(r"(\w+)\((.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_RESULT = re.compile(r"(.*)\) += (-?\d+|\?)(?: .*)?", re.DOTALL)
_TARGET = re.compile(r"\d+<(TCP[^\]]*\]|[^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
#: what stands last among the arguments of a positioned write
_OFFSET = {
    "pwrite64": re.compile(r", (\d+)$"),
    "pwritev": re.compile(r", (\d+)$"),
    "pwritev2": re.compile(r", (\d+), \w+$"),
}
_UNFINISHED = " <unfinished ...>"
#: behind the last call of a thread that had not returned when the tracing ended
_DETACHED = " <detached ...>"


class TraceError(RuntimeError):
    """The processes cannot be traced, or the trace cannot be read."""


@dataclass
class Syscall:
    """One call of one thread.

    Attributes:
        thread: its id.
        name: of the call.
        target: path of the descriptor's file, or "TCP:[local->remote]".
        texts: every string argument, unescaped: buffers in their order, or paths.
        offset: where a positioned write goes, else 0.
        result: what it returned; None until its exit, and if it never returned.
    """

    thread: int
    name: str
    target: str
    texts: list[bytes]
    offset: int
    result: int | None = None

    @property
    def written(self) -> bytes:
        """The bytes that were taken; those that were given while it has not returned."""
        data = b"".join(self.texts)
        return data if self.result is None else data[: max(self.result, 0)]


@dataclass(frozen=True)
class Event:
    """A call is entered or has returned; `line` is that of the trace, from 1."""

    line: int
    entered: bool
    call: Syscall


class SyscallTrace:
    """Traces running processes, threads included, from entering the context to leaving it."""

    def __init__(self, pids: Sequence[int], output: Path) -> None:
        """Say what to trace and where the record goes."""
        self._pids = list(pids)
        self._output = output
        self._messages = output.with_suffix(".messages")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = shutil.which("strace")
        if program is None:
            raise TraceError("strace is not installed: run `bash deploy/ensure-strace.sh`")
        command = [program, "-f", "-yy", "-xx", "-s", str(_BUFFER_BYTES_MAX), "-o", str(self._output)]
        command += ["-e", f"trace={','.join(CALLS)}", "-e", "signal=none"]
        command += [f"--attach={pid}" for pid in self._pids]
        with self._messages.open("wb") as messages:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=messages)
        try:
            eventually(self._attached, _DEADLINE_S, "strace traces every process")
        except BaseException:
            self._end()
            raise
        return self

    def _attached(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise TraceError(
                f"strace ended with {self._process.returncode}: {tail(self._messages).strip()}\n"
                "the audit needs ptrace: run it as root or with CAP_SYS_PTRACE (in a container --cap-add "
                "SYS_PTRACE), or set kernel.yama.ptrace_scope to 0"
            )
        # A thread that begins meanwhile is reported in the same way.
        attached = set(map(int, re.findall(r"Process (\d+) attached", self._messages.read_text())))
        return attached >= set(self._pids)

    def __exit__(self, *_exc: object) -> None:
        self._end()

    def _end(self) -> None:
        """Let the processes run on untraced."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_DEADLINE_S)
            raise


def read_events(output: Path) -> Iterator[Event]:
    """Yield the events of a trace in their order.

    Raises:
        TraceError: a line is not what strace writes.
    """
    open_calls: dict[int, Syscall] = {}
    with output.open(encoding="ascii") as lines:
        for number, text in enumerate(lines, start=1):
            match = _LINE.fullmatch(text.rstrip("\n"))
            if match is None:
                raise TraceError(f"line {number} of the trace is cut: {text[:200]!r}")
            thread, rest = int(match[1]), match[2]
            if rest.startswith(("+++", "---")):
                continue
            if (resumed := _RESUMED.fullmatch(rest)) is not None:
                call = open_calls.pop(thread)
                if call.name != resumed[1]:
                    raise TraceError(f"line {number}: {resumed[1]} resumed, but {call.name} was open")
                call.result = _result(resumed[2], number)[1]
                yield Event(number, False, call)
                continue
            begun = _BEGUN.fullmatch(rest)
            if begun is None:
                raise TraceError(f"line {number} of the trace is not a call: {rest[:200]!r}")
            if rest.endswith((_UNFINISHED, _DETACHED)):
                arguments = begun[2].removesuffix(_UNFINISHED).removesuffix(_DETACHED)
                open_calls[thread] = _call(thread, begun[1], arguments, number)
                yield Event(number, True, open_calls[thread])
                continue
            arguments, result = _result(begun[2], number)
            call = _call(thread, begun[1], arguments, number)
            yield Event(number, True, call)
            call.result = result
            yield Event(number, False, call)


def _result(text: str, number: int) -> tuple[str, int | None]:
    match = _RESULT.fullmatch(text)
    if match is None:
        raise TraceError(f"line {number} of the trace has no result: …{text[-200:]!r}")
    return match[1], None if match[2] == "?" else int(match[2])


def _call(thread: int, name: str, arguments: str, number: int) -> Syscall:
    target = _TARGET.match(arguments)
    texts = []
    for text in _TEXT.finditer(arguments, target.end() if target else 0):
        if text[2]:
            raise TraceError(f"line {number}: strace cut a buffer of {name}")
        texts.append(_unescaped(text[1]))
    label = "" if target is None else target[1]
    path = _unescaped(label).decode() if label.startswith("\\x") else label
    offset = _OFFSET[name].search(arguments) if name in _OFFSET else None
    if name in _OFFSET and offset is None:
        raise TraceError(f"line {number}: {name} without an offset: …{arguments[-100:]!r}")
    return Syscall(thread, name, path, texts, int(offset[1]) if offset else 0)


def _unescaped(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
