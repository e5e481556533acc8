"""A quorum node whose state goes wrong when a test says so: `python -m tests.support.diverging_node serve …`.

When node N has applied the creation of `/diverge-N`, it changes its own copy of `/victim` behind the log's
back, as a bit flip in its memory would: nobody notices before the next write of `/victim`. Other nodes, and
everything else of this one, run the shipped code.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from quorum.cli.main import main
from quorum.core.records import HEADER_BYTES
from quorum.node.replica import NodeReplica
from quorum.raft.core.entry import Entry

VICTIM = "victim"
#: set in the environment: nothing goes wrong any more
HEALTHY = "DIVERGING_NODE_HEALTHY"
#: the lowest byte of the data version in a record (records.py)
_VERSION_BYTE = 35


def marker(node_id: int) -> str:
    """Return the path whose creation makes a node go wrong."""
    return f"/diverge-{node_id}"


def corrupt_when_marked(node_id: int) -> None:
    """Have this process's replica go wrong once the marker is there."""
    shipped = NodeReplica.apply
    done = False

    def apply(self: NodeReplica, entry: Entry) -> None:
        nonlocal done
        shipped(self, entry)
        if not done and self.machine.tree.get(marker(node_id)) is not None:
            done = True
            children = self.machine.tree.root.children
            record = children[VICTIM]
            assert isinstance(record, bytes)
            assert len(record) >= HEADER_BYTES
            wrong = bytearray(record)
            wrong[_VERSION_BYTE] ^= 0x40
            children[VICTIM] = bytes(wrong)

    NodeReplica.apply = apply  # type: ignore[method-assign]  # the point of this module


if __name__ == "__main__":
    config = tomllib.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
    if HEALTHY not in os.environ:
        corrupt_when_marked(int(config["node"]["id"]))
    sys.exit(main())
