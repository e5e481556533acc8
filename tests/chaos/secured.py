"""A cluster with everything switched on that keeps strangers out, and the ways of its clients.

Nodes and brokers have TLS wherever they listen and dial, each with a certificate of its own. Clients of nodes
show a certificate, clients of brokers prove a password (SCRAM-SHA-512), and access lists give them topics,
groups and transactional ids, nothing else. Audit logs are on, and limits of quotas count. The admin ports and
the nodes' plain ports are for the run, which looks at the cluster and is no part of it.

An address of such a cluster is "FOLDER@HOST:PORT,…", where the folder has the authority and the client's
certificate; any other address is plain.
Source: docs/operate/secure.md.
"""

from __future__ import annotations

import io
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from kazoo.client import KazooClient

from quorum.cli.main import main as quorate
from quorum.config.node import read_peer_secrets
from quorum.metadata.paths import CLUSTER_ID
from quorum.metadata.records import decode_cluster_id
from quorum.metadata.trust import Trust
from tests.support.broker_records import quiet as plainly
from tests.support.broker_records import reading as plainly_reading
from tests.support.certificates import Authority

#: Whose certificate clients of nodes show, and who clients of brokers are.
CLIENT: Final = "client"
#: Who gives the clients their rights.
ADMIN: Final = "admin"
PASSWORDS: Final = {CLIENT: "what the client knows", ADMIN: "what the admin knows"}
MECHANISM: Final = "SCRAM-SHA-512"
#: What clients may do everything with.
RESOURCES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
WAIT_S: Final = 60.0

LibrdkafkaSettings = dict[str, str | int | float | bool]


class Secured:
    """The settings of the processes of one cluster."""

    def __init__(self, folder: Path) -> None:
        """Make the authority and the client's certificate."""
        self.authority = Authority(folder)
        self.authority.issue(CLIENT)

    def prefix(self, hosts: str) -> str:
        """Return these hosts as an address of this cluster."""
        return f"{self.authority.folder}@{hosts}"

    def node(self, node_id: int, port: int) -> dict[str, dict[str, object]]:
        """Return sections of node.toml; the TLS port of clients is `port`."""
        return {
            "listen": {"secure_client": f"127.0.0.1:{port}"},
            "security": {"ssl_quorum": True},
            "limits": {"enforce_quota": True},
            "audit": {"enable": True},
            "tls": self.authority.settings(f"node-{node_id}"),
        }

    def broker(self, broker_id: int, brokers: int, port: int) -> dict[str, dict[str, object]]:
        """Return sections of broker.toml; clients have the port `port` alone."""
        others = [f"User:CN=broker-{each}" for each in range(1, brokers + 1)]
        return {
            "listen": {"client": "", "listeners": [f"SASL_SSL://127.0.0.1:{port}"]},
            "security": {
                "authorizer_class_name": "AclAuthorizer",
                "inter_broker_protocol": "ssl",
                "protect_znodes": True,
                "super_users": [f"User:{ADMIN}", *others],
            },
            "limits": {"connections_per_address_max": 1000},
            "audit": {"enable": True},
            "sasl": {"enabled_mechanisms": [MECHANISM], "connections_max_reauth_ms": 5000},
            "tls": self.authority.settings(f"broker-{broker_id}"),
        }

    def admit(self, bootstrap: str, zookeeper: KazooClient, secret: Path) -> None:
        """Make the users, and give the clients and the run their rights.

        Args:
            bootstrap: the brokers, as an address of this cluster.
            zookeeper: the run's own session, which nemeses use; it gets the rights of brokers.
            secret: the brokers' secret, a file.
        """
        trust = Trust(read_peer_secrets(secret), decode_cluster_id(zookeeper.get(CLUSTER_ID)[0]))
        for each in trust.credentials:
            zookeeper.add_auth("digest", each.decode())
        hosts = ",".join(f"{host}:{port}" for host, port in zookeeper.hosts)
        for user, password in PASSWORDS.items():
            _set_user(user, password, hosts, secret)
        anything = (
            ResourcePatternType.LITERAL,
            f"User:{CLIENT}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        admin = AdminClient(quiet(bootstrap, ADMIN))
        for made in admin.create_acls([AclBinding(kind, "*", *anything) for kind in RESOURCES]).values():
            made.result(WAIT_S)


def _set_user(user: str, password: str, hosts: str, secret: Path) -> None:
    typed, sys.stdin = sys.stdin, io.StringIO(f"{password}\n")
    try:
        words = ("users", "set", user, "--hosts", hosts, "--peer-secret", str(secret))
        assert quorate([*words, "--mechanism", MECHANISM]) == 0
    finally:
        sys.stdin = typed


# -- the ways of clients -----------------------------------------------------------------------------------


def _split(address: str) -> tuple[Path | None, str]:
    folder, _, hosts = address.rpartition("@")
    return (Path(folder) if folder else None), hosts


def _sasl(folder: Path, user: str) -> LibrdkafkaSettings:
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def quiet(bootstrap: str, user: str = CLIENT) -> LibrdkafkaSettings:
    """Settings of a client of librdkafka that prints nothing while brokers are away."""
    folder, hosts = _split(bootstrap)
    return plainly(hosts) if folder is None else {**plainly(hosts), **_sasl(folder, user)}


def reading(bootstrap: str) -> LibrdkafkaSettings:
    """Settings of a consumer of librdkafka that reads by assignment: it has a group by name only."""
    return {**plainly_reading(bootstrap), **quiet(bootstrap)}


def kafka_python(bootstrap: str) -> dict[str, Any]:
    """Settings of kafka-python that say where the brokers are."""
    folder, hosts = _split(bootstrap)
    found: dict[str, Any] = {"bootstrap_servers": hosts.split(",")}
    if folder is not None:
        found |= {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(folder / "ca.pem"),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": CLIENT,
            "sasl_plain_password": PASSWORDS[CLIENT],
        }
    return found


def kazoo(address: str) -> dict[str, Any]:
    """Settings of kazoo that say where the nodes are."""
    folder, hosts = _split(address)
    found: dict[str, Any] = {"hosts": hosts}
    if folder is not None:
        certificate, key = folder / f"{CLIENT}.pem", folder / f"{CLIENT}.key"
        found |= {"use_ssl": True, "ca": str(folder / "ca.pem")}
        found |= {"certfile": str(certificate), "keyfile": str(key)}
    return found


def way(address: str) -> tuple[str, Callable[[], ssl.SSLContext] | None]:
    """Return hosts and TLS of our own client of nodes."""
    folder, hosts = _split(address)
    return hosts, None if folder is None else partial(_context, folder)


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / f"{CLIENT}.pem", folder / f"{CLIENT}.key")
    return context
