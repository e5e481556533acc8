"""The log of a process on standard error: as text for people, or as one JSON object a line.

Decides how a line looks, for nodes, brokers, the console and `quorate up` alike. In JSON nothing is written
that is no line of JSON: no warning of Python, no exception that nobody has caught. Whatever a message names,
its control characters are escaped, so that it neither forges a line nor acts on a terminal.
Process-wide settings, made only by commands.

Source: RFC 8259; RFC 3339.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

from quorum.errors import printable

TEXT, JSON = "text", "json"
FORMATS: Final = (TEXT, JSON)


class TextFormatter(logging.Formatter):
    """Writes an event as one line: time, level, logger, message; below it a traceback, where there is one."""

    def __init__(self) -> None:
        """Know how a line looks."""
        line = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
        super().__init__(line, "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line, with what acts on a terminal or ends a line escaped."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802
        """Return the traceback, in lines; whatever else acts on a terminal is escaped."""
        return printable(super().formatException(ei), kept="\n")


class JsonFormatter(logging.Formatter):
    """Writes an event as one object: time, level, logger, process, message, and what else there is."""

    def __init__(self, process: str) -> None:
        """Know whose log it is, as "node 1"."""
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end.

        Returns:
            time (RFC 3339 in UTC, milliseconds), level (DEBUG to CRITICAL), logger, process, message;
            remedy, where an error has one; exception, the traceback as one text, where there is one.
        """
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "process": self._process,
            "message": record.getMessage(),
        }
        if remedy := getattr(record, "remedy", ""):
            fields["remedy"] = str(remedy)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        # Bytes of file names that are no UTF-8 are no characters of JSON either.
        return json.dumps(
            {key: value.encode("utf-8", "backslashreplace").decode() for key, value in fields.items()}
        )


def add_log_format(parser: argparse.ArgumentParser, about: str) -> None:
    """Declare the option of a command without a configuration file; None: it is not given."""
    parser.add_argument("--log-format", choices=FORMATS, metavar="FORMAT", help=about)


def set_up_logging(log_format: str, process: str) -> None:
    """Log to standard error, one event a line, with the time.

    Args:
        log_format: one of FORMATS.
        process: whose log it is, as "node 1".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if log_format == TEXT else JsonFormatter(process))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if log_format == TEXT:
        return
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda ended: _uncaught(ended.exc_type, ended.exc_value, ended.exc_traceback)
    sys.unraisablehook = lambda lost: _uncaught(lost.exc_type, lost.exc_value, lost.exc_traceback)


def json_line(message: str) -> str:
    """Return a line of news of `quorate up` as an event of its log."""
    return JsonFormatter("up").format(
        logging.LogRecord("quorate.up", logging.INFO, "", 0, message, None, None)
    )


def is_json() -> bool:
    """Tell whether this process logs in JSON."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    found = error if error is not None else kind()
    logging.getLogger("quorate.process").critical(
        "an exception that nobody caught: %s", kind.__name__, exc_info=(kind, found, trace)
    )
