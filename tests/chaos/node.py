"""Runs `quorate serve` as it is shipped, on a disk that nemeses can fill and slow down.

python -m tests.chaos.node serve …
"""

from __future__ import annotations

import sys

from quorum.cli.main import main as quorate
from tests.support import full_node, slow_disk


def main() -> int:
    """Run the node of the command line."""
    full_node.install()
    slow_disk.install()
    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
