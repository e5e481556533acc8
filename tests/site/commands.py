"""Runs the commands of a page as its reader would, from top to bottom, on real components.

A page has its commands in fenced blocks of the language `console`: lines `$ command`, each followed by what
it prints. A block with a title (```toml title="node.toml") is a file, which is written at its turn; so a
program is shown with a title and then run by a command. A test walks a page:

    with walk("docs/start/tour.md", tmp_path) as page:
        page.run("Topics, producers, consumers")    # the commands below this heading
        page.run()                                  # all that are left, in order

- It runs in the folder that the test names, by bash; `export` and `cd` last. `quorate` and `python` are those
  of this checkout. A command must end with 0, or with what `codes` says: {"quorate doctor": 1}.
- Ports that a page may leave out or name (2181, 8181, 9092, 8080 and those after them) become free ones: in
  the text, as options of `quorate up`, and by a profile as the default of every command. `addresses` puts a
  cluster of the test's own there: {"hosts": …, "admin": …, "bootstrap_servers": …}.
- Paths below ROOTS become paths in the folder. `rewrites` says what else is called otherwise here.
- What a command prints is compared with what the page shows after it: each line that is shown must be
  printed, in this order. Numbers and ids may differ; `…` stands for any words, alone for any lines.
- Commands of RUNS_ON, and of `runs_on`, are started, and the walk goes on once they have printed the words
  beside them. `page.end("quorate up")` sends Ctrl-C, as does the end of the walk, and expects that they end;
  `page.wait(…)` waits until one ends by itself. What they print is compared then.
- Commands of NOT_RUN are left out. The walk fails if any other command was not run.

A test holds that every page of docs/start and docs/operate that has commands is walked
(tests/tidy/test_page_commands.py), and that NOT_RUN has only what these pages have.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.site.pages import Block, blocks
from tests.support.nodes import eventually, held_ports, server_environment, tail
from tests.tidy.rules import REPOSITORY

DEADLINE_S: Final = 120.0

#: first words of commands that a test machine cannot run → why
NOT_RUN: Final = {
    "pip install": "a test installs nothing into its own environment",
    "source .venv/bin/activate": "the test runs in such an environment",
    **dict.fromkeys(
        ("python3 -m venv /opt/quorate-$VERSION", "/opt/quorate-$VERSION/bin/pip install", "ln -sfn"),
        "root's folder, a package index: test_installs.py installs what is built",
    ),
    **dict.fromkeys(
        ("make bench", "python -m tests.bench"), "minutes: tests/bench/test_*_cases.py run each case small"
    ),
    **dict.fromkeys(
        ("install", "systemctl"),
        "root's files, and a machine that systemd runs: test_service_units.py runs what the units start",
    ),
    **dict.fromkeys(
        ("docker build", "docker compose"), "a container engine and a registry: deploy/README.md"
    ),
    **dict.fromkeys(
        ("kubectl", "helm"), "a cluster of Kubernetes: deploy/README.md says what was done instead"
    ),
}
#: first words of commands that run until Ctrl-C → what they print once they are at work
RUNS_ON: Final = {
    "quorate up": "three things to try",
    "quorate console": "console: http",
    **dict.fromkeys(("quorate import --from", "quorate import --from-profile"), "following: "),
}
#: folders of a machine that commands write to
ROOTS: Final = ("/tmp/", "/var/lib/", "/var/log/", "/etc/", "/backups")
#: what `quorate up` takes ports for → how many after the first, and the defaults, which pages name
_PORTS: Final = {"client": 2181, "peer": 2281, "admin": 8181, "broker": 9092, "console": 8080}
_EACH_MAX: Final = 3
_OFFSETS_OF_BROKERS: Final = [number + above for number in range(_EACH_MAX) for above in (0, 100, 200)]
#: numbers with their signs, and ids: what may differ from one run to the next
_VARIES: Final = re.compile(r"(?:0x)?\b[0-9a-f]*\d[\d,.:TZ+a-f-]*")


class Step(NamedTuple):
    """One thing that a reader does.

    Attributes:
        heading: of the section. line: of the page, from 1.
        command: "" for a file. shown: what the page says that it prints.
        file: its path; "" for a command. content: of the file.
    """

    heading: str
    line: int
    command: str
    shown: tuple[str, ...] = ()
    file: str = ""
    content: str = ""


def steps(text: str) -> list[Step]:
    """Return what a reader of a page does, in order."""
    found: list[Step] = []
    for block in blocks(text):
        if block.title:
            found.append(Step(block.heading, block.line, "", (), block.title, block.text))
        elif block.language == "console":
            found += _commands(block)
    return found


def _commands(block: Block) -> Iterator[Step]:
    """Yield the commands of a block: `$ command`, continued after a backslash, and what they print."""
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        command, *shown = lines[start:end]
        while command.endswith("\\"):
            command = command[:-1] + shown.pop(0).strip()
        words = re.sub(r"\s+# .*", "", command[2:]).strip()
        yield Step(block.heading, block.line + start, words, tuple(line for line in shown if line.strip()))


def begins(command: str, words: str) -> bool:
    """Tell whether a command begins with these words."""
    return f"{command} ".startswith(f"{words} ")


def why_not_run(command: str) -> str | None:
    """Return why a test machine cannot run a command; None if it can."""
    return next((why for words, why in NOT_RUN.items() if begins(command, words)), None)


def missing_line(shown: tuple[str, ...], printed: str) -> str | None:
    """Return the first line shown that a command did not print in this order; None: there is none."""
    left = iter(printed.splitlines())
    for line in shown:
        if line.strip() in ("…", "..."):
            continue
        words = ".*".join(r"\s+".join(map(_pattern, part.split())) for part in line.split("…"))
        if not any(re.fullmatch(rf"\s*{words}\s*", each) for each in left):
            return line
    return None


def _pattern(word: str) -> str:
    return r"\S+".join(map(re.escape, _VARIES.split(word)))


@dataclass
class Walk:
    """A page that is being walked; `walk` makes it.

    Attributes:
        folder: where commands run. environment: what they get, and leave.
        replaced: {text of the page: what stands there instead}. options: further ones of `quorate up`.
        left: what is not yet done. started: what runs on.
    """

    path: str
    folder: Path
    environment: dict[str, str]
    replaced: dict[str, str]
    options: str
    runs_on: dict[str, str]
    codes: Mapping[str, int]
    left: list[Step]
    started: dict[Step, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, heading: str | None = None) -> str:
        """Do what is left, or what is left below a heading; return what the last command printed."""
        chosen = [step for step in self.left if heading in (None, step.heading)]
        assert chosen or heading is None, f"{self.path}: nothing is left below {heading!r}"
        printed = ""
        for step in chosen:
            self.left.remove(step)
            if step.file:
                file = self.folder / self.as_here(step.file)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.as_here(step.content), "utf-8")
            elif why_not_run(step.command) is None:
                printed = self._do(step)
        return printed

    def as_here(self, text: str) -> str:
        """Return a text of the page with what stands here instead."""
        found = "|".join(map(re.escape, sorted(self.replaced, key=len, reverse=True)))
        return re.sub(rf"(?<![\w.])(?:{found})(?!\d)", lambda each: self.replaced[each[0]], text)

    def end(self, command: str) -> None:
        """Press Ctrl-C for what a command, which begins so, has started; it must end well."""
        step = self._started(command)
        self.started[step].send_signal(signal.SIGINT)
        code = self.started[step].wait(DEADLINE_S)
        assert code in (0, 130, -signal.SIGINT), f"{self.path}: {step.command} ended with {code}"
        del self.started[step]
        self._printed(step)

    def wait(self, command: str) -> str:
        """Wait until what a command, which begins so, has started ends by itself; return what it printed."""
        step = self._started(command)
        code = self.started[step].wait(DEADLINE_S)
        assert code == 0, f"{self.path}: {step.command} ended with {code}:\n{tail(self._output(step))}"
        del self.started[step]
        return self._printed(step)

    def _started(self, command: str) -> Step:
        return next(step for step in reversed(self.started) if begins(step.command, command))

    def _do(self, step: Step) -> str:
        where = f"{self.path}:{step.line}: {step.command}"
        line = self.as_here(step.command)
        ready = self._ready_words(step.command, line)
        if begins(line, "quorate up"):
            line = f"quorate up {self.options}{line.removeprefix('quorate up')}"
        output = self._output(step)
        if ready is not None:
            self._start(step, line, output, ready, where)
            return output.read_text("utf-8")
        code = self._finish(line, output)
        wanted = next((code for words, code in self.codes.items() if begins(step.command, words)), 0)
        assert code == wanted, f"{where}\nas {line}\nended with {code}:\n{tail(output)}"
        return self._printed(step)

    def output(self, command: str) -> Path:
        """Return the file of what a command, which begins so, has started prints."""
        return self._output(self._started(command))

    def _output(self, step: Step) -> Path:
        """Return the file of what a command prints; the folder is there."""
        folder = self.folder / "output"
        folder.mkdir(exist_ok=True)
        return folder / f"{step.line}.txt"

    def _printed(self, step: Step) -> str:
        """Return what a command has printed; the page's lines are there."""
        printed = self._output(step).read_text("utf-8")
        missing = missing_line(tuple(map(self.as_here, step.shown)), printed)
        where = f"{self.path}:{step.line}: {step.command}"
        assert missing is None, f"{where}\nprinted no line as {missing!r}:\n{printed}"
        return printed

    def _ready_words(self, *forms: str) -> str | None:
        """Return what a command that runs on says when it is at work, as the page or as we call it."""
        if {"--detach", "--cutover"} & set(forms[0].split()):
            return None
        pairs = self.runs_on.items()
        return next((said for words, said in pairs for form in forms if begins(form, words)), None)

    def _finish(self, line: str, output: Path) -> int:
        """Run a command to its end; what it exports, and where it is then, stays."""
        state = self.folder / "output/environment"
        # Not by -c: what the line looks for by `pgrep -f` would be found in its own words.
        script = output.with_suffix(".sh")
        script.write_text(f"trap 'env -0 > {shlex.quote(str(state))}' EXIT\n{line}\n", "utf-8")
        with output.open("wb") as stream:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", str(script)],
                cwd=self.environment["PWD"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE_S,
                check=False,
            )
        self.environment = dict(
            pair.split("=", 1) for pair in state.read_text("utf-8").split("\0") if "=" in pair
        )
        return done.returncode

    def _start(self, step: Step, line: str, output: Path, ready: str, where: str) -> None:
        with output.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.environment["PWD"],
                env=self.environment | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        self.started[step] = process

        def at_work() -> bool:
            return ready in output.read_text("utf-8") or process.poll() is not None

        eventually(at_work, DEADLINE_S, f"{where} prints {ready!r}")
        assert ready in output.read_text("utf-8"), f"{where}\nended with {process.poll()}:\n{tail(output)}"


@contextlib.contextmanager
def walk(
    path: str,
    folder: Path,
    *,
    rewrites: Mapping[str, str] | None = None,
    runs_on: Mapping[str, str] | None = None,
    codes: Mapping[str, int] | None = None,
    addresses: Mapping[str, str] | None = None,
) -> Iterator[Walk]:
    """Walk a page; at the end every command that can be run here must have been run.

    Args:
        path: of the page, in the repository. folder: an empty one.
        rewrites, runs_on, codes, addresses: as the docstring of this module says.
    """
    text = (REPOSITORY / path).read_text("utf-8")
    with contextlib.ExitStack() as held:
        first = {
            key: held.enter_context(held_ports(*_OFFSETS_OF_BROKERS if key == "broker" else range(_EACH_MAX)))
            for key in _PORTS
        }
        replaced = {
            f"{host}:{port + number}": f"{host}:{first[key] + number}"
            for key, port in _PORTS.items()
            for number in (_OFFSETS_OF_BROKERS if key == "broker" else range(_EACH_MAX))
            for host in ("127.0.0.1", "localhost")
        }
        replaced |= {root: f"{folder}{root}" for root in ROOTS} | {"pgrep -f ": f"pgrep -f {folder}/"}
        page = Walk(
            path,
            folder,
            _environment(folder, addresses or _addresses(first)),
            replaced | dict(rewrites or {}),
            " ".join(f"--{key}-port {port}" for key, port in first.items()),
            RUNS_ON | dict(runs_on or {}),
            codes or {},
            steps(text),
        )
        try:
            yield page
            left = [step.command for step in page.left if step.command and why_not_run(step.command) is None]
            assert left == [], f"{path}: commands that were not run: {left}"
            for step in reversed([*page.started]):
                page.end(step.command)
        finally:
            _kill([*page.started.values()])


def _addresses(first: Mapping[str, int]) -> dict[str, str]:
    def run(key: str, scheme: str = "") -> str:
        return ",".join(f"{scheme}127.0.0.1:{first[key] + number}" for number in range(_EACH_MAX))

    admin = f"http://127.0.0.1:{first['admin']}"
    return {"hosts": run("client"), "bootstrap_servers": run("broker"), "admin": admin}


def _environment(folder: Path, addresses: Mapping[str, str]) -> dict[str, str]:
    """Write a folder of programs and a profile; return an environment in which they count."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, words in (("quorate", f"{python} -P -m quorum"), ("python", python)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    profiles = folder / "bin/profiles.toml"
    profiles.write_text("".join(["[page]\n", *(f'{key} = "{value}"\n' for key, value in addresses.items())]))
    return server_environment(
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
        PWD=str(folder),
        QUORATE_PROFILE="page",
        QUORATE_PROFILE_FILE=str(profiles),
    )


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what a walk that failed has left, and its children."""
    for process in processes:
        if process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
