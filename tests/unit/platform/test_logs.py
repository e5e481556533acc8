"""The log of a process, as text and as one JSON object a line."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from typing import Any

from quorum.platform.logs import JsonFormatter, json_line


def event(message: str, *values: object, **more: Any) -> dict[str, str]:
    record = logging.LogRecord("quorate.test", logging.WARNING, "", 0, message, values, None)
    record.__dict__.update(more)
    line = JsonFormatter("node 1").format(record)
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, str] = json.loads(line)
    return found


def run(program: str) -> list[str]:
    """Run a program, and return the lines of its standard error."""
    begin = "import logging, sys, threading, warnings\nfrom quorum.platform.logs import set_up_logging\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + program], capture_output=True, text=True, check=False, timeout=30
    )
    return done.stderr.splitlines()


def test_an_event_has_its_time_level_logger_process_and_message() -> None:
    found = event("node %d stops: %s", 1, "SIGTERM received", created=1_800_000_000.0625)
    assert found == {
        "time": "2027-01-15T08:00:00.062Z",
        "level": "WARNING",
        "logger": "quorate.test",
        "process": "node 1",
        "message": "node 1 stops: SIGTERM received",
    }


def test_control_characters_forge_no_line_and_reach_no_terminal() -> None:
    hostile = 'a\r\n{"level": "INFO"}\x1b[2J\x9b\u202egpj.exe\u2028\x00"\\'
    assert event("path %s", hostile)["message"] == f"path {hostile}"


def test_bytes_that_are_no_text_are_shown_as_escapes() -> None:
    assert event("file %s", b"a\xff".decode("utf-8", "surrogateescape"))["message"] == "file a\\udcff"


def test_an_error_has_its_remedy_in_the_same_event() -> None:
    assert event("it is full", remedy="make room")["remedy"] == "make room"
    assert "remedy" not in event("all is well")


def test_an_exception_is_one_text() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = event("it failed", exc_info=sys.exc_info())
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: two\nlines")


def test_news_of_up_are_events() -> None:
    found = json.loads(json_line("node 1 is ready"))
    assert (found["process"], found["level"], found["message"]) == ("up", "INFO", "node 1 is ready")


def test_nothing_but_json_is_written_where_json_is_wanted() -> None:
    lines = run(
        "set_up_logging('json', 'node 1')\n"
        "logging.getLogger('quorate.test').info('said')\n"
        "warnings.warn('careful')\n"
        "class Lost:\n"
        "    def __del__(self): raise OSError('lost')\n"
        "Lost()\n"
        "thread = threading.Thread(target=lambda: 1 / 0)\n"
        "thread.start(); thread.join()\n"
        "raise KeyError('nobody')\n"
    )
    found = [json.loads(line) for line in lines]
    assert found[0]["message"] == "said"
    assert "careful" in found[1]["message"]
    raised = [each["exception"].splitlines()[-1] for each in found[2:]]
    assert raised == ["OSError: lost", "ZeroDivisionError: division by zero", "KeyError: 'nobody'"]


def test_text_has_the_time_before_each_event() -> None:
    (line,) = run("set_up_logging('text', 'node 1')\nlogging.getLogger('quorate.test').info('said')\n")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO quorate\.test said", line)


def test_in_text_control_characters_forge_no_line_and_reach_no_terminal() -> None:
    program = "set_up_logging('text', 'up')\nlogging.error('path %s', 'a\\r\\n2027 INFO x\\x1b[2J')\n"
    program += "try:\n    raise ValueError('b\\x1b[2J')\nexcept ValueError:\n    logging.exception('c')"
    first, second, *trace = run(program)
    assert first.endswith("ERROR root path a\\r\\n2027 INFO x\\x1b[2J")
    assert second.endswith("ERROR root c")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "ValueError: b\\x1b[2J")
