"""`quorate doctor`: says what is wrong with a cluster, why it matters, and what helps."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorum.admin.client import checked_brokers, checked_urls
from quorum.cli.commands.status import (
    DEFAULT_ADMIN,
    add_admin_ports_option,
    add_kafka_sasl_options,
    add_tls_options,
)
from quorum.config.logins import read_login
from quorum.errors import QuorateError, UsageError, printable
from quorum.platform.terminal import styled

if TYPE_CHECKING:
    from quorum.doctor.doctor import Scope
    from quorum.health.findings import Finding, Report

HELP = "say what is wrong with a cluster, and what helps"
DESCRIPTION = """\
Look at all nodes and brokers that answer, and at the files of this machine that --config and --data-dir name.
It changes nothing and ends within 20 seconds. docs/operate/doctor.md has the table of checks. Exit codes: 0
nothing is wrong, 1 an error, 3 warnings at most; with --nagios 0, 1, 2, 3 as monitors have them."""
EXAMPLES = """\
examples:
  quorate doctor
  quorate doctor --data-dir data
  quorate doctor --admin http://10.0.0.1:8181,http://10.0.0.2:8181 --lag-max 5000 --nagios
  quorate doctor --config node.toml --config broker.toml --json
  quorate doctor --ca ca.pem --sasl admin --password-file admin.password
"""

LAG_MAX: Final = 100_000
#: findings of one check that the text shows
_SHOWN_MAX: Final = 5
_COLOURS: Final = {"error": "red", "warning": "yellow", "info": "cyan", "healthy": "green"}
_UNKNOWN: Final = ("UNKNOWN", 3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    add_scope_options(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object")
    output.add_argument("--nagios", action="store_true", help="print one line, and exit as monitors want it")


def add_scope_options(parser: argparse.ArgumentParser) -> None:
    """Declare what a look is about."""
    add_admin_ports_option(parser, default=f"those of the configurations, else {DEFAULT_ADMIN}")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT,…", help="brokers to ask (default: those that are registered)"
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a node.toml or broker.toml of this machine; may be repeated",
    )
    about = "the folder of a `quorate up`: all its configurations"
    parser.add_argument("--data-dir", metavar="DIR", type=Path, help=about)
    parser.add_argument(
        "--lag-max",
        metavar="N",
        type=int,
        default=LAG_MAX,
        help=f"records that a group may lag behind (default: {LAG_MAX})",
    )
    add_tls_options(parser)
    add_kafka_sasl_options(parser)


def look(arguments: argparse.Namespace) -> Report:
    """Look at what the options say; raises a UsageError where one is wrong."""
    from quorum.doctor.doctor import diagnose

    return asyncio.run(diagnose(scope_from(arguments))).report


def scope_from(arguments: argparse.Namespace) -> Scope:
    """Return what the options of `add_scope_options` say.

    Raises:
        UsageError: one is wrong.
    """
    from quorum.doctor.doctor import scope_of

    if arguments.lag_max < 0:
        raise UsageError(f"--lag-max {arguments.lag_max} is negative", "give a number of records")
    urls = checked_urls(arguments.admin)
    name, file = arguments.kafka_sasl, arguments.kafka_password_file
    login = read_login(name, file, ("--sasl", "--password-file"))
    brokers = checked_brokers(arguments.bootstrap)
    found = scope_of(urls, brokers, arguments.lag_max, arguments.config, arguments.data_dir)
    return replace(found, login=login, mechanism=arguments.kafka_mechanism)


def run(arguments: argparse.Namespace) -> int:
    """Look, judge and print."""
    from quorum.health.findings import EXIT_CODES, MONITORED, as_fields

    if arguments.nagios:
        try:
            found = look(arguments)
            (word, code), sentence = MONITORED[found.verdict], found.sentence
        except QuorateError as error:
            (word, code), sentence = _UNKNOWN, f"{error.message}; {error.remedy}"
        # What follows a bar is read as numbers.
        print(f"{word} - {printable(sentence).replace('|', '/')}")
        return code
    found = look(arguments)
    if arguments.json:
        print(json.dumps(as_fields(found)))
    else:
        print("\n".join(describe(found)))
    return EXIT_CODES[found.verdict]


def describe(found: Report) -> list[str]:
    """Lay a report out for a person."""
    lines: list[str] = []
    counts = Counter(each.check for each in found.findings)
    shown: Counter[str] = Counter()
    for each in found.findings:
        shown[each.check] += 1
        if shown[each.check] <= _SHOWN_MAX:
            lines += _finding(each)
        elif shown[each.check] == counts[each.check]:
            lines += [f"… and {counts[each.check] - _SHOWN_MAX} more of {each.check} (--json has all)", ""]
    outcomes = Counter(each.outcome for each in found.checks)
    made = outcomes["ok"] + outcomes["found"]
    skipped = f", {outcomes['skipped']} could not be made (--json says why)" if outcomes["skipped"] else ""
    verdict = styled(found.verdict, _COLOURS[found.verdict], sys.stdout)
    return [*lines, f"{verdict}: {made} checks made, {outcomes['found']} found something{skipped}"]


def _finding(each: Finding) -> list[str]:
    severity = each.severity.value
    rows = {"why": each.why, "remedy": each.remedy, "command": each.command}
    return [
        f"{styled(severity, _COLOURS[severity], sys.stdout)} {each.check}: {printable(each.what)}",
        *(f"  {name:<8}{printable(text)}" for name, text in rows.items() if text),
        "",
    ]
