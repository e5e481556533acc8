"""The harness that runs a page's commands: what it takes from a page, and what it does not let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site import commands
from tests.site.commands import Step, missing_line, steps, walk

PAGE = """# A

```toml title="node.toml"
[node]
```

## B

1. First.

   ```console
   $ quorate status --json \\
       --admin X  # the leader
   leader 1
   $ make up
   ```

```sh
not this
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a page, which `walk` finds by the name page.md."""
    monkeypatch.setattr(commands, "REPOSITORY", tmp_path)
    return tmp_path / "page.md"


def test_a_page_has_files_and_commands_in_order() -> None:
    assert steps(PAGE) == [
        Step("A", 4, "", (), "node.toml", "[node]\n"),
        Step("B", 12, "quorate status --json --admin X", ("leader 1",)),
        Step("B", 15, "make up"),
    ]


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        (("leader   node 2",), None),
        (("…", "zxid 17"), None),
        (("cluster  local (5d0c4f0f2f3e4b0e9b1f0a54f2b9c1aa)",), None),
        (("leader …",), None),
        (("zxid 17", "leader node 2"), "leader node 2"),
        (("leader broker 2",), "leader broker 2"),
    ],
)
def test_numbers_and_ids_may_differ_and_words_may_not(shown: tuple[str, ...], missing: str | None) -> None:
    printed = "cluster  local (a80081421e174c7b44081067637370e9)\nleader   node 1\nzxid     90\n"
    assert missing_line(shown, printed) == missing


def test_a_walk_runs_commands_where_the_last_one_left_off(page: Path, tmp_path: Path) -> None:
    page.write_text(
        '```ini title="a/b.ini"\nhost = 127.0.0.1:2182\n```\n'
        "```console\n$ cd a\n$ export WORD=hello\n$ cat b.ini; echo $WORD  # said\n"
        "host = 127.0.0.1:2182\nhello\n```\n"
    )
    with walk("page.md", tmp_path / "here") as walked:
        printed = walked.run()
    assert printed.startswith("host = 127.0.0.1:")
    assert "2182" not in printed


def test_a_command_that_fails_is_named_with_its_line(page: Path, tmp_path: Path) -> None:
    page.write_text("# A\n\n```console\n$ true\n$ ls missing\n```\n")
    with (
        pytest.raises(AssertionError, match=r"page.md:5: ls missing\nas ls missing\nended with 2"),
        walk("page.md", tmp_path / "here") as walked,
    ):
        walked.run()


def test_a_code_that_is_awaited_passes(page: Path, tmp_path: Path) -> None:
    page.write_text("```console\n$ exit 3\n```\n")
    with walk("page.md", tmp_path / "here", codes={"exit 3": 3}) as walked:
        walked.run()


def test_what_a_page_shows_must_be_printed(page: Path, tmp_path: Path) -> None:
    page.write_text("```console\n$ echo one 1\none 2\n$ echo two\nthree\n```\n")
    with (
        pytest.raises(AssertionError, match="printed no line as 'three'"),
        walk("page.md", tmp_path / "here") as walked,
    ):
        walked.run()


def test_a_command_that_was_left_out_fails_the_walk(page: Path, tmp_path: Path) -> None:
    page.write_text(
        "# A\n```console\n$ true\n```\n# B\n```console\n$ true 2\n$ source .venv/bin/activate\n```\n"
    )
    with (
        pytest.raises(AssertionError, match=r"commands that were not run: \['true 2'\]"),
        walk("page.md", tmp_path / "here") as walked,
    ):
        walked.run("A")


def test_what_runs_on_is_awaited_and_ended_by_ctrl_c(page: Path, tmp_path: Path) -> None:
    page.write_text("```console\n$ python wait.py\n$ true\n```\n")
    program = 'import signal\nprint("at work")\ntry:\n    signal.pause()\n'
    program += 'except KeyboardInterrupt:\n    open("ended", "w")\n'
    (tmp_path / "here").mkdir()
    (tmp_path / "here/wait.py").write_text(program)
    with walk("page.md", tmp_path / "here", runs_on={"python wait.py": "at work"}) as walked:
        walked.run()
        assert not (tmp_path / "here/ended").exists()
    assert (tmp_path / "here/ended").exists()


def test_what_ends_before_it_is_at_work_is_told(page: Path, tmp_path: Path) -> None:
    page.write_text("```console\n$ echo sorry\n```\n")
    with (
        pytest.raises(AssertionError, match="ended with 0:\nsorry"),
        walk("page.md", tmp_path / "here", runs_on={"echo": "at work"}) as walked,
    ):
        walked.run()
