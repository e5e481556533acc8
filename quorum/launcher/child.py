"""How this program is started once more: `quorate up` starts its nodes, and itself where it is detached.

Decides which package a child runs and what of the environment it gets. No state.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: This program. -P: the current directory may hold whatever calls itself `quorum`, or a module of Python.
PROGRAM = (sys.executable, "-P", "-m", "quorum")
#: Settings that belong to one node or its supervisor; the environment must not give them to all alike.
_OWN_SETTINGS = ("QUORATE_NODE_", "QUORATE_LISTEN_", "QUORATE_MEMBERS_", "QUORATE_SECURITY_PEER_SECRET_FILE")


def child_environment() -> dict[str, str]:
    """Return the environment of a child that runs this program, and this one, wherever it was found.

    Without the settings of single nodes.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)}
    package = str(Path(__file__).parents[2])
    if not sys.flags.safe_path and sys.path[0] == package:
        # `python -m quorum` in a checkout: its children would look only among what is installed.
        others = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{package}{os.pathsep}{others}" if others else package
    return environment
