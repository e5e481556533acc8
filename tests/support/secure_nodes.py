"""Nodes whose clients may come by TLS, as processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from kazoo.client import KazooClient

from tests.support.certificates import Authority
from tests.support.nodes import Node, QuorateNodes, hold_port


class SecureNodes(QuorateNodes):
    """A cluster with a TLS port beside the plain one."""

    def __init__(
        self,
        authority: Authority,
        *,
        nodes: int = 1,
        tls: Mapping[str, object] | None = None,
        security: Mapping[str, object] | None = None,
        listen: Mapping[str, object] | None = None,
        tables: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """Choose ports.

        Args:
            authority: signs the certificate of all nodes, "nodes".
            nodes: how many.
            tls: keys of [tls] over those of the certificate.
            security: further keys of [security]. listen: of [listen].
            tables: further sections.
        """
        self._secure_ports: dict[int, int] = {}
        self._security = dict(security or {})
        self._listen = dict(listen or {})
        settings: dict[str, Mapping[str, object]] = {
            "limits": {"tick_ms": 500, "session_timeout_min_ms": 1000, "handshake_timeout_ms": 1000},
            # Other tests on the machine take longer turns than a quiet one knows.
            "raft": {"election_timeout_ms": [1000, 2000]},
            "tls": {**authority.settings("nodes"), **(tls or {})},
            **(tables or {}),
        }
        super().__init__(nodes=nodes, settings=settings)

    def config(self, node: Node) -> dict[str, dict[str, object]]:
        """Sections of one node's node.toml."""
        sections = super().config(node)
        if node.node_id not in self._secure_ports:
            holder, self._secure_ports[node.node_id] = hold_port()
            node.holders.append(holder)
        sections["listen"]["secure_client"] = f"127.0.0.1:{self._secure_ports[node.node_id]}"
        sections["listen"].update(self._listen)
        sections["security"].update(self._security)
        return sections

    @property
    def secure_hosts(self) -> str:
        """Connect string of the TLS ports."""
        return ",".join(f"127.0.0.1:{port}" for port in self._secure_ports.values())

    def secure_port(self, node_id: int = 1) -> int:
        """Return the TLS port of a node."""
        return self._secure_ports[node_id]

    def secure(self, **security: object) -> None:
        """Write other keys of [security] for all nodes; each counts from its next start."""
        self._security.update(security)
        for node in self.nodes.values():
            self._write_files(node)

    def reload(self, node_id: int = 1) -> None:
        """Have a node read its files again."""
        os.kill(self.pid(node_id), signal.SIGHUP)

    def output(self, node_id: int = 1) -> str:
        """Everything that a node has logged."""
        return self.nodes[node_id].output_path.read_text()


def secure_kazoo(hosts: str, authority: Authority, name: str = "", **more: Any) -> KazooClient:
    """Return a kazoo client that is not started, with the certificate of that name, or none."""
    own: dict[str, Any] = {}
    if name:
        certificate, key = authority.issue(name)
        own = {"certfile": str(certificate), "keyfile": str(key)}
    return KazooClient(hosts, use_ssl=True, ca=str(authority.file), timeout=5.0, **own, **more)
