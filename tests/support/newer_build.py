"""Runs `quorate` as the next build would be: the same code, which supports one feature level more.

    python -m tests.support.newer_build serve …

Source: docs/operate/upgrade.md; tests/integration/test_rolling_update.py.
"""

from __future__ import annotations

import sys

import quorum
from quorum.core import feature_levels

VERSION = f"{quorum.__version__}+next"
LEVEL = feature_levels.FEATURE_LEVEL + 1


def main() -> int:
    """Run the command line; everything that is imported from here on goes by the next level."""
    quorum.__version__ = VERSION
    feature_levels.FEATURE_LEVEL = LEVEL  # type: ignore[misc]  # final, but for this
    from quorum.cli.main import main as quorate

    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
