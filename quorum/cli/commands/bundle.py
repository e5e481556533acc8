"""`quorate bundle`: a ZIP for a bug report, without secrets, data or records."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from quorum.cli.commands.doctor import add_scope_options, scope_from
from quorum.errors import printable

HELP = "write a ZIP for a bug report"
DESCRIPTION = """\
Look at a cluster as `quorate doctor` does, and write what it says together with status, settings, metrics
and the end of the log of each process. The ZIP has no secrets, no data of znodes and no records; its
missing.txt says what could not be had. Logs and brokers' settings are found by --data-dir and --config."""
EXAMPLES = """\
examples:
  quorate bundle --data-dir data
  quorate bundle --admin http://10.0.0.1:8181,http://10.0.0.2:8181 --output report.zip
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    about = "the ZIP to write, which must not exist (default: quorate-bundle-TIME.zip)"
    parser.add_argument("--output", metavar="FILE", type=Path, help=about)
    add_scope_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look, write the file and print its path."""
    from quorum.doctor.bundle import check_new, collect, write

    path = arguments.output or Path(time.strftime("quorate-bundle-%Y%m%d-%H%M%S.zip", time.gmtime()))
    check_new(path)
    write(path, asyncio.run(collect(scope_from(arguments))))
    print(printable(str(path)))
    return 0
