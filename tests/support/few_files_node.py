"""Runs `quorate serve` as it is shipped, in a process that may have few files open.

    OPEN_FILES=256 python -m tests.support.few_files_node serve …

OPEN_FILES is the hard limit; the soft one is half of it, as where a system is careful. All else is shipped.
"""

from __future__ import annotations

import os
import resource
import sys

from quorum.cli.main import main as quorate


def main() -> int:
    """Run the node of the command line."""
    limit = int(os.environ["OPEN_FILES"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit // 2, limit))
    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
