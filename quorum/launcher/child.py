"""What `quorate up` knows of one process, node or broker: its name, command line, ready check and files.

Decides which package a child runs and what of the environment it gets. No state.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
#: This program. -P: the current directory may hold whatever calls itself `quorum`, or a module of Python.
PROGRAM = (sys.executable, "-P", "-m", "quorum")
#: What belongs to one process or its supervisor; the environment must not give them to all alike.
_OWN_SETTINGS = (
    *("QUORATE_NODE_", "QUORATE_LISTEN_", "QUORATE_MEMBERS_", "QUORATE_SECURITY_PEER_SECRET_FILE"),
    *("QUORATE_BROKER_BROKER_ID", "QUORATE_BROKER_BROKER_DATA_DIR", "QUORATE_BROKER_LISTEN_"),
    *("QUORATE_BROKER_ADVERTISED_", "QUORATE_BROKER_QUORUM_", "QUORATE_BROKER_SECURITY_PEER_SECRET_FILE"),
    *("NOTIFY_SOCKET", "WATCHDOG_"),
)


class Child(NamedTuple):
    """One process of a local cluster."""

    #: "node" or "broker"
    kind: str
    #: its id, from 1
    number: int
    folder: Path
    #: key of its section [listen] → port on loopback; "client" and "admin" are among them
    ports: Mapping[str, int]
    #: its configuration file, without what a person added: {section: {key: value}}
    settings: Mapping[str, Mapping[str, object]]

    @property
    def name(self) -> str:
        """As people call it: node 1."""
        return f"{self.kind} {self.number}"

    @property
    def command(self) -> tuple[str, ...]:
        """What runs it; --bootstrap does nothing where a node has data."""
        config = ("--config", str(self.config_file))
        return (
            *PROGRAM,
            *(("serve", *config, "--bootstrap") if self.kind == "node" else ("broker", *config)),
        )

    @property
    def config_file(self) -> Path:
        """Its settings."""
        return self.folder / f"{self.kind}.toml"

    @property
    def log_file(self) -> Path:
        """Where its output goes."""
        return self.folder / f"{self.kind}.log"

    @property
    def data_dir(self) -> Path:
        """Its hard state, which only the process itself touches."""
        return self.folder / "data"

    @property
    def client_address(self) -> str:
        """Where clients find it."""
        return f"{HOST}:{self.ports['client']}"


def child_environment() -> dict[str, str]:
    """Return the environment of a child that runs this program, and this one, wherever it was found.

    Without the settings of single processes.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)}
    package = str(Path(__file__).parents[2])
    if not sys.flags.safe_path and sys.path[0] == package:
        # `python -m quorum` in a checkout: its children would look only among what is installed.
        others = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{package}{os.pathsep}{others}" if others else package
    return environment
