"""Every transcript plays as it is written, and the harness says what is wrong with one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.subjects import FOLDER, SUBJECTS, scene_of, transcripts
from tests.scenarios.transcript import (
    RULE,
    Lines,
    Scene,
    TranscriptError,
    command,
    difference,
    paragraphs,
    play,
)


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript_plays_as_written(path: Path) -> None:
    text = path.read_text()
    happened = play(text, scene_of(path))
    assert happened == text, f"{path}\n{difference(text, happened)}"


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript_says_what_it_shows(path: Path) -> None:
    (_, title), (_, first), *_ = paragraphs(path.read_text())
    assert len(title) == 2
    assert title[1] == "=" * len(title[0])
    assert RULE not in first
    assert 3 <= len(first) <= 8, "3 to 8 lines of prose follow the title"


def test_every_transcript_has_a_subject() -> None:
    assert {path.parent.name for path in FOLDER.rglob("*.txt")} == set(SUBJECTS)


class NegativeError(Exception):
    """A step below zero."""


class Counters(Scene):
    """Two machines that count."""

    REFUSALS = (NegativeError,)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    @command("{node:int} counts {steps:int}")
    def count(self, node: int, steps: int) -> Lines:
        if steps < 0:
            raise NegativeError(f"{steps} is below zero")
        self.counts[node] = self.counts.get(node, 0) + steps
        return [f"{node} is at {self.counts[node]}"]

    @command("rest {nodes:ints}")
    def rest(self, nodes: tuple[int, ...]) -> Lines:
        return ["rested" for _ in nodes]

    @command("{node:int} counts -{word}")
    def never(self, node: int, word: str) -> Lines:
        return [f"{node} never counts -{word}"]

    @command("say {words:rest}")
    def say(self, words: str) -> Lines:
        return [] if words == "no thing" else [words]


GOOD = """Counting
========

Two machines.

1 counts 2
2 counts 3
1 counts 2
----
1 is at 2
2 is at 3
1 is at 4

rest 1 2 3
say no thing
----
rested  (3 times)

say no thing
----
nothing
"""


def test_what_happens_as_written_leaves_a_transcript_as_it_is() -> None:
    assert play(GOOD, Counters()) == GOOD


def test_another_outcome_shows_as_a_difference() -> None:
    wrong = GOOD.replace("1 is at 4", "1 is at 5")
    happened = play(wrong, Counters())
    assert happened == GOOD
    shown = difference(wrong, happened).splitlines()
    assert "-1 is at 5" in shown
    assert "+1 is at 4" in shown
    assert difference(GOOD, GOOD) == ""


def test_a_refusal_is_an_outcome() -> None:
    assert Counters().run("rest 1") == ["rested"]

    class Plain(Counters):
        @command("down {node:int}")
        def down(self, node: int) -> Lines:
            return self.count(node, -1)

    assert Plain().run("down 1") == ["refused: -1 is below zero"]


@pytest.mark.parametrize("line", ["1 jumps", "x counts 2", "1 counts -2"])
def test_a_line_that_is_no_one_command_is_named(line: str) -> None:
    with pytest.raises(TranscriptError) as caught:
        play(f"Title\n\n{line}\n{RULE}\n", Counters())
    assert "{node:int} counts {steps:int}" in str(caught.value)
    assert caught.value.__notes__ == [f"line 3: {line}"]


@pytest.mark.parametrize("text", ["", "Title\n\nProse.\n", f"1 counts 2\n{RULE}\n"])
def test_what_is_no_transcript_is_refused(text: str) -> None:
    with pytest.raises(TranscriptError):
        play(text, Counters())
