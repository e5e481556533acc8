"""A service manager for servers under test: the socket that they tell, and what their units allow.

Does not start units: nothing here needs systemd to run. Source: sd_notify(3); systemd.exec(5),
SystemCallFilter=; strace(1).
"""

from __future__ import annotations

import functools
import re
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from tests.support.nodes import REPOSITORY

#: calls that a unit allows, and that it may refuse by their arguments
_LOOKED_AT: Final = frozenset(("mmap", "mprotect", "openat", "socket"))
_HYPOTHESIS: Final = str(REPOSITORY / ".hypothesis")


class NotifySocket:
    """A datagram socket as systemd names it in NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        """Bind it to a path."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        self._told: list[str] = []

    def told(self) -> list[str]:
        """Every assignment so far, in order, as READY=1."""
        while True:
            try:
                self._told += self._socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return self._told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Return {key: its values in order} of a unit file's lines."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith(("#", ";")):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def allowed_calls(unit: Path) -> set[str]:
    """Return the system calls that the lines SystemCallFilter= of a unit allow, applied in order."""
    allowed = _expanded(["@default"])
    for value in settings_of(unit)["SystemCallFilter"]:
        names = _expanded(value.removeprefix("~").split())
        allowed = allowed - names if value.startswith("~") else allowed | names
    return allowed


@functools.cache
def _group(name: str) -> frozenset[str]:
    """Return what a group of systemd's has, groups among it."""
    command = ["systemd-analyze", "syscall-filter", name]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = frozenset(re.findall(r"^ +(@?[\w-]+)$", shown, re.MULTILINE))
    assert found, shown
    return found


def _expanded(names: Iterable[str]) -> set[str]:
    """Return calls for the names of calls and groups."""
    return {each for name in names for each in (_expanded(_group(name)) if name.startswith("@") else [name])}


def watched(command: Sequence[str], allowed: set[str], output: Path) -> list[str]:
    """Return a command that is another one traced: calls that are not allowed, and _LOOKED_AT.

    The process that it starts is the traced one, and what it starts is traced, too.
    """
    left_out = ",".join(f"?{name}" for name in sorted(allowed - _LOOKED_AT))
    tracing = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-e", f"trace=!{left_out}", "-e", "signal=none"]
    return [*tracing, "-o", str(output), *command]


def refused(trace: Path, unit: Path, state: Path) -> list[str]:
    """Return the lines of a trace that the unit would have refused.

    Args:
        trace: of `watched`. unit: its file. state: the folder that it may write to.
    """
    settings = settings_of(unit)
    families = set(settings["RestrictAddressFamilies"][0].split())
    found = []
    for line in trace.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)", line)
        if call is None or "resumed>" in line:
            continue
        name, arguments = call.groups()
        if name == "openat":
            # ProtectSystem: all else can only be read. Hypothesis, which kio may import, keeps files.
            written = re.match(r'AT_FDCWD, "([^"]*)", [A-Z_|]*(?:O_WRONLY|O_RDWR|O_CREAT)', arguments)
            bad = written is not None and not written[1].startswith((f"{state}/", "/dev/", _HYPOTHESIS))
        elif name == "socket":
            bad = arguments.split(",")[0] not in families
        elif name in ("mmap", "mprotect"):
            # MemoryDenyWriteExecute: no memory is made that can be written and run
            bad = "PROT_EXEC" in arguments and ("PROT_WRITE" in arguments or name == "mprotect")
        else:
            bad = name not in allowed_calls(unit)
        if bad:
            found.append(line)
    return found
