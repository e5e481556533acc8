"""Runs `quorate serve` or `quorate broker` as shipped, on a disk that nemeses reach; mistakes may be planted.

python -m tests.chaos.process serve …
"""

from __future__ import annotations

import sys

from quorum.cli.main import main as quorate
from tests.chaos import planted
from tests.support import full_broker, full_node, losing_disk, slow_disk


def main() -> int:
    """Run the node or broker of the command line."""
    if sys.argv[1] == "broker":
        full_broker.install()
        planted.install()
    else:
        losing_disk.install()
        full_node.install()
        slow_disk.install()
    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
