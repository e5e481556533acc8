"""A terminal that shows one frame after another, and is as before when that ends.

Plain ANSI: the alternate screen, no cursor, lines that do not wrap. Decides nothing of what is shown. Hard
state: the terminal's settings, put back however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from quorum.platform.terminal import stop_signals, styled
from quorum.top.frame import Line

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_QUIT: Final = b"qQ\x03\x04"


class Screen:
    """Standard output, and the keyboard where standard input is one."""

    def __init__(self, laid_out: Callable[[int, int], Sequence[Line]]) -> None:
        """Draw nothing yet.

        Args:
            laid_out: says what is to be seen now, for so many columns and rows.
        """
        self._laid_out = laid_out
        self.keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before = None if self.keyboard is None else termios.tcgetattr(self.keyboard)

    def enter(self) -> None:
        """Take the terminal."""
        if self.keyboard is not None:
            tty.setcbreak(self.keyboard)
        _write(_ENTER)
        self.draw()

    def draw(self) -> None:
        """Draw over what was drawn, in the size of now."""
        lines = self._laid_out(*_size())
        shown = (styled(each.text, each.style, sys.stdout) if each.style else each.text for each in lines)
        _write("\x1b[H" + "\x1b[K\n".join(shown) + "\x1b[K\x1b[J")

    def leave(self) -> None:
        """Give the terminal back, if it is still there."""
        with contextlib.suppress(OSError):
            _write(_LEAVE)
        if self.keyboard is not None and self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._before)

    def pause(self) -> None:
        """Give the terminal back and stop until SIGCONT, as Ctrl-Z asks."""
        self.leave()
        os.kill(os.getpid(), signal.SIGSTOP)


@contextlib.contextmanager
def shown_on(screen: Screen) -> Iterator[asyncio.Future[None]]:
    """Use the terminal for as long as the body runs.

    Yields:
        A future that is done when `q` is pressed or a signal asks to stop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    keyboard = screen.keyboard

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def pressed(keyboard: int) -> None:
        keys = os.read(keyboard, 64)
        if not keys:
            loop.remove_reader(keyboard)
        elif any(key in _QUIT for key in keys):
            end()

    handlers = dict.fromkeys(stop_signals(), end)
    handlers |= {signal.SIGWINCH: screen.draw, signal.SIGTSTP: screen.pause, signal.SIGCONT: screen.enter}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        screen.enter()
        if keyboard is not None:
            loop.add_reader(keyboard, pressed, keyboard)
        yield ended
    finally:
        if keyboard is not None:
            loop.remove_reader(keyboard)
        screen.leave()
        for number in handlers:
            loop.remove_signal_handler(number)


def _size() -> tuple[int, int]:
    """Return columns and rows of the terminal; COLUMNS and LINES count only where it does not know them."""
    with contextlib.suppress(OSError):
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if columns and rows:
            return columns, rows
    return shutil.get_terminal_size()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
