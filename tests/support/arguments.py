"""Types for argparse."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """Read a count.

    Raises:
        argparse.ArgumentTypeError: it is none, or zero.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count: give a whole number from 1")
    return int(text)
