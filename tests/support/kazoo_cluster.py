"""A pytest plugin for kazoo's own tests: their cluster is one of Quorate's nodes.

kazoo's harness imports `kazoo.testing.common` for a cluster of Java servers. This plugin takes its place, so
that not one of kazoo's files changes: `pytest -p tests.support.kazoo_cluster --pyargs kazoo.tests`. What the
harness asks for is kept: users by DIGEST-MD5, the super user's digest, TLS with a client's certificate.
Source: kazoo 2.11, its module kazoo.testing.harness.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

from quorum.config.node import FOUR_LETTER_WORDS
from quorum.config.sasl_users import user_line
from tests.support.certificates import Authority
from tests.support.secure_nodes import SecureNodes

#: Of a client, in the certificates that the harness asks for.
CLIENT = "client"
#: As the harness sets up Java's servers: with the read-only mode.
LIMITS = {"tick_ms": 500, "session_timeout_min_ms": 1000, "read_only_mode": True}


class Server:
    """One node, as the harness knows a server."""

    def __init__(self, nodes: SecureNodes, node_id: int) -> None:
        self._nodes = nodes
        self._node_id = node_id
        self.address = nodes.host(node_id)
        self.secure_address = f"127.0.0.1:{nodes.secure_port(node_id)}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._nodes.running(self._node_id)

    def run(self) -> None:
        """Start it again, and wait until it serves."""
        if not self.running:
            self._nodes.start_node(self._node_id)
            self._nodes.wait_ready(self._node_id)

    def stop(self) -> None:
        """End it."""
        if self.running:
            self._nodes.stop(self._node_id)


class NotThere:
    """What stands for nodes that are not there yet: the harness starts them."""

    running = False
    address = ""


class ZookeeperCluster:
    """Nodes in place of ZooKeeper's servers."""

    def __init__(
        self, *, size: int, jaas_config: str | None, java_system_properties: list[str], **_of_java: object
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="quorate-kazoo-"))
        atexit.register(shutil.rmtree, folder)
        self._authority = Authority(folder / "pki")
        users = folder / "users.digest"
        users.touch(mode=0o600)
        found = re.findall(r'user_(\w+)="([^"]*)"', jaas_config or "")
        users.write_text("".join(user_line(name, password) + "\n" for name, password in found))
        digests = [each.partition("superDigest=")[2] for each in java_system_properties]
        self._client = self._authority.issue(CLIENT)
        self._size = size
        self._security: dict[str, object] = {
            "super_digest": next((each for each in digests if each), ""),
            # kazoo asks for ZooKeeper's version by "envi".
            "four_letter_words": list(FOUR_LETTER_WORDS),
            **({"sasl_users_file": str(users)} if found else {}),
        }
        self._nodes: SecureNodes | None = None
        self._servers: list[Server | NotThere] = [NotThere()]

    def __iter__(self) -> Iterator[Server | NotThere]:
        return iter(self._servers)

    def __getitem__(self, index: int) -> Server | NotThere:
        return self._servers[index]

    def start(self) -> None:
        """Start new nodes, and wait until they serve."""
        assert self._nodes is None
        self._nodes = SecureNodes(
            self._authority, nodes=self._size, security=self._security, tables={"limits": LIMITS}
        )
        self._nodes.start()
        self._servers[:] = [Server(self._nodes, node_id) for node_id in self._nodes.node_ids]

    def terminate(self) -> None:
        """End all nodes, whose files go; start() makes others."""
        if self._nodes is not None:
            self._nodes.close()
        self._nodes = None
        self._servers[:] = [NotThere()]

    def get_logs(self) -> list[str]:
        """Return the last lines of all nodes."""
        return [] if self._nodes is None else [text for _, text in self._nodes.outputs()]

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        """Return a client's certificate and key, and who signed the nodes'."""
        certificate, key = self._client
        return {
            "client_key": key.read_bytes(),
            "client_cert": certificate.read_bytes(),
            "ca_cert": self._authority.file.read_bytes(),
        }


_common = types.ModuleType("kazoo.testing.common")
_common.ZookeeperCluster = ZookeeperCluster  # type: ignore[attr-defined]
sys.modules["kazoo.testing.common"] = _common
# As the harness reads it; no Java of that version is started.
os.environ.setdefault("ZOOKEEPER_VERSION", "3.9.5")
