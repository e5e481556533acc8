"""What the command line needs of a terminal: colours, a table, one status line below ordinary lines, and the
signals that end what runs on it.

Colours and the status line appear only where a terminal is there, and never with NO_COLOR
(https://no-color.org) or TERM=dumb; elsewhere every change is one plain line. Knows nothing of nodes. Soft
state only: the status line shown last.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from typing import TextIO

from quorum.errors import FULL_DISK_ERRNOS

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask what runs on a terminal to stop; SIGHUP not below nohup, which ignores it.

    A server does not end with the terminal that it was started from: see foreground.py.
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that understands escape sequences."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO) -> str:
    """Wrap text in a colour or weight if the stream is a terminal that should have one.

    Args:
        text: one line.
        style: "bold", "dim", "red", "green", "yellow" or "cyan".
        stream: where the text will be written.
    """
    if os.environ.get("NO_COLOR") or not is_terminal(stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lay out rows in columns that are as wide as their widest cell, two blanks between them.

    Args:
        header: the names of the columns.
        rows: each as long as the header; None is shown as "-".

    Returns:
        The lines, the header first, without blanks at their ends.
    """
    cells = [list(header), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


#: What an operating system says when nobody reads any more: the terminal was closed, the pipe's reader ended.
_UNREAD_ERRNOS = (errno.EIO, errno.EPIPE)


class Console:
    """Prints lines of news, and on a terminal keeps one status line below them.

    It ends nothing that it tells of: what a full disk does not take, or a slow reader where the stream does
    not wait, is lost, and once nobody reads any more nothing is written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = is_terminal(stream)
        self._status = ""
        self._written: Callable[[str], str] | None = None

    def use(self, written: Callable[[str], str]) -> None:
        """Write each line as a function says, and no status line any more."""
        self._written = written
        self._live = False

    @property
    def live(self) -> bool:
        """True if a status line can be shown."""
        return self._live

    def say(self, line: str, style: str | None = None) -> None:
        """Print one line of news above the status line."""
        if self._written is not None:
            self._write(f"{self._written(line)}\n")
            return
        text = styled(line, style, self._stream) if style else line
        clear = "\r\x1b[K" if self._status else ""
        self._write(f"{clear}{text}\n{self._status}")

    def show_status(self, line: str) -> None:
        """Replace the status line; "" removes it. Does nothing without a terminal."""
        if not self._live:
            return
        width = shutil.get_terminal_size().columns
        cut = line if len(line) < width else line[: width - 1]
        shown = styled(cut, "dim", self._stream) if cut else ""
        if shown != self._status:
            self._status = shown
            self._write(f"\r\x1b[K{shown}")

    def _write(self, text: str) -> None:
        """Write out at once."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            if error.errno in _UNREAD_ERRNOS:
                self._unread()
            elif error.errno not in (*FULL_DISK_ERRNOS, errno.EAGAIN):
                raise

    def _unread(self) -> None:
        """From now on write to nowhere; what the stream still holds would be an error at its end."""
        self._live = False
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  # it is not a path
            os.dup2(nowhere.fileno(), self._stream.fileno())
