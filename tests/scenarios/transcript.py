"""Transcripts: documents that are tests.

A transcript is a text file of paragraphs. One that has the line ``----`` is a block: above it stand commands,
one a line, below it what the machines did. Every other paragraph is prose; the first is the title. `play`
gives the commands to a `Scene` and returns the document with what happened in the place of what was
expected, so a transcript holds if playing it changes nothing.

How to add a subject: write a module with a subclass of `Scene` whose methods carry ``@command("pattern")``
and return the lines to print, add a row to `SUBJECTS` in `subjects.py`, and put transcripts into the folder
of that name:

    class Counters(Scene):
        def __init__(self) -> None:
            self.counts: dict[int, int] = {}

        @command("{node:int} counts {steps:int}")
        def count(self, node: int, steps: int) -> Lines:
            self.counts[node] = self.counts.get(node, 0) + steps
            yield f"{node} is at {self.counts[node]}"

``{name}`` stands for one word, ``{name:int}``, ``{name:ints}`` and ``{name:rest}`` for a number, numbers, and
the rest of the line. A scene holds as many machines as its commands make. One function with a ``match`` over
the closed union of effects writes each of them as a line (`raft_lines.py`). A command that raises one of
`Scene.REFUSALS` prints the refusal. Then ``python -m tests.scenarios --rewrite FILE`` fills in what happens,
and a person reads it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, TypeVar

RULE = "----"
#: What a block shows where nothing happened.
NOTHING = "nothing"
Lines = Iterable[str]
Method = TypeVar("Method", bound=Callable[..., Lines])

#: {kind of a field: (what it matches, how it is read)}
_KINDS: dict[str, tuple[str, Callable[[str], object]]] = {
    "word": (r"\S+", str),
    "int": (r"-?\d+", int),
    "ints": (r"\d+(?: \d+)*", lambda text: tuple(int(each) for each in text.split())),
    "rest": (r".+", str),
}
_FIELD = re.compile(r"\{(\w+)(?::(\w+))?\}")


class TranscriptError(Exception):
    """The file is no transcript, or a line of it is no command."""


class _Command(NamedTuple):
    pattern: str
    shape: re.Pattern[str]
    kinds: dict[str, str]  #: {field: its kind}
    method: str


def command(pattern: str) -> Callable[[Method], Method]:
    """Mark a method of a scene as the command that this pattern describes; several may share a method."""

    def mark(method: Method) -> Method:
        marks: Any = method
        marks.patterns = (*getattr(method, "patterns", ()), pattern)
        return method

    return mark


def _compile(pattern: str, method: str) -> _Command:
    shape, kinds, end = "", {}, 0
    for field in _FIELD.finditer(pattern):
        name, kind = field[1], field[2] or "word"
        kinds[name] = kind
        shape += re.escape(pattern[end : field.start()]) + f"(?P<{name}>{_KINDS[kind][0]})"
        end = field.end()
    return _Command(pattern, re.compile(shape + re.escape(pattern[end:])), kinds, method)


class Scene:
    """The machines of one transcript, and the commands that steer them."""

    #: What a command may raise as its answer; the line says the refusal.
    REFUSALS: ClassVar[tuple[type[Exception], ...]] = ()
    _commands: ClassVar[tuple[_Command, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = [
            _compile(pattern, name)
            for name, method in vars(cls).items()
            for pattern in getattr(method, "patterns", ())
        ]
        cls._commands = (*cls._commands, *own)

    def run(self, line: str) -> list[str]:
        """Do what one line says and return what happened.

        Raises:
            TranscriptError: the line fits no command, or more than one.
        """
        found = [(each, match) for each in self._commands if (match := each.shape.fullmatch(line))]
        if len(found) != 1:
            known = "\n  ".join(each.pattern for each in self._commands)
            fitting = [each.pattern for each, _ in found]
            raise TranscriptError(f"{line!r} fits {fitting or 'no command'}; the commands are\n  {known}")
        ((chosen, match),) = found
        fields = {name: _KINDS[kind][1](match[name]) for name, kind in chosen.kinds.items()}
        try:
            return merged(getattr(self, chosen.method)(**fields) or ())
        except self.REFUSALS as refusal:
            return [f"refused: {refusal}"]


def merged(lines: Lines) -> list[str]:
    """Write a line that comes several times in a row once, with the number of times."""
    kept: list[tuple[str, int]] = []
    for line in lines:
        if kept and kept[-1][0] == line:
            kept[-1] = (line, kept[-1][1] + 1)
        else:
            kept.append((line, 1))
    return [line if times == 1 else f"{line}  ({times} times)" for line, times in kept]


def paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line and the lines of each paragraph."""
    held: list[str] = []
    begin = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            begin = begin if held else number
            held.append(line.rstrip())
        elif held:
            yield begin, held
            held = []


def play(text: str, scene: Scene) -> str:
    """Return the transcript with what happens now below the rule of each block.

    Raises:
        TranscriptError: there is no title or no block, or a line is no command; names the line, and what
            happened in its block before it.
    """
    played: list[str] = []
    blocks = 0
    for begin, lines in paragraphs(text):
        if RULE not in lines:
            played.append("\n".join(lines))
            continue
        blocks += 1
        if not played:
            raise TranscriptError("a transcript begins with its title")
        played.append("\n".join(_play_block(begin, lines[: lines.index(RULE)], scene)))
    if not blocks:
        raise TranscriptError("a transcript has at least one block")
    return "\n\n".join(played) + "\n"


def _play_block(begin: int, commands: list[str], scene: Scene) -> list[str]:
    happened: list[str] = []
    for number, line in enumerate(commands, begin):
        try:
            happened += scene.run(line)
        except Exception as error:
            error.add_note("\n".join([f"line {number}: {line}", *happened]))
            raise
    return [*commands, RULE, *(happened or [NOTHING])]


def difference(expected: str, happened: str) -> str:
    """Return the unified diff between a transcript and what happened; empty if they are equal."""
    lines = difflib.unified_diff(
        expected.splitlines(), happened.splitlines(), "expected", "happened", lineterm="", n=4
    )
    return "\n".join(lines)
