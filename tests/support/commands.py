"""Commands that a finding tells people to copy."""

from __future__ import annotations

import shlex

from quorum.cli.main import build_parser

OTHERS = {"chmod", "chronyc", "curl", "df", "ulimit"}


def is_command(text: str) -> bool:
    """Tell whether it is one of the usual tools, or a command line of `quorate` that its parser takes."""
    program, *words = shlex.split(text.partition(" > ")[0])
    if program in OTHERS:
        return True
    if "--help" not in words:
        build_parser().parse_args(words)
    return program == "quorate"
