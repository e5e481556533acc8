"""Nodes and brokers with everything on: TLS on every port, SASL, access lists, one super user of clients.

`SecuredBrokers` also writes the settings of unchanged clients. A certificate CN=alice and a user alice are
one principal. Nothing here knows what the clients do.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from quorum.cli.main import main
from tests.support.broker_cluster import BrokerCluster
from tests.support.certificates import Authority
from tests.support.nodes import Settings, hold_port
from tests.support.secure_nodes import SecureNodes

ADMIN = "admin"
PASSWORDS = {ADMIN: "may do all", "alice": "wonder, land=", "bob": "builder"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)


class SecuredBrokers:
    """Brokers whose clients come by SASL_SSL, or by SSL with a certificate; the plain port knows nobody."""

    def __init__(self, authority: Authority, *, brokers: int = 1, sections: Settings | None = None) -> None:
        """Choose ports.

        Args:
            authority: signs every certificate.
            brokers: how many.
            sections: of every broker.toml, over those that make it secure.
        """
        self.authority = authority
        self.nodes = SecureNodes(authority, tls={"client_auth": "want"}, security={"ssl_quorum": True})
        own = [f"User:CN=broker-{broker_id}" for broker_id in range(1, brokers + 1)]
        settings: dict[str, dict[str, object]] = {
            "broker": {"default_replication_factor": brokers},
            "groups": {"group_initial_rebalance_delay_ms": 0},
            "quorum": {"hosts": self.nodes.secure_hosts.split(","), "ssl": True},
            "security": {
                "inter_broker_protocol": "ssl",
                "authorizer_class_name": "AclAuthorizer",
                "super_users": [*own, f"User:{ADMIN}"],
                "ssl_principal_mapping_rules": ["RULE:^CN=(broker-.*)$/CN=$1/", "RULE:^CN=([^,]+).*$/$1/"],
            },
            "sasl": {"enabled_mechanisms": list(MECHANISMS)},
            "tls.ssl": {"client_auth": "need"},
        }
        for section, values in (sections or {}).items():
            settings.setdefault(section, {}).update(values)
        self.cluster = BrokerCluster(brokers=brokers, quorum=self.nodes, settings=settings)
        #: {protocol: ports}
        self.ports: dict[str, list[int]] = {"SSL": [], "SASL_SSL": []}
        for broker_id, broker in self.cluster.brokers.items():
            listeners = []
            for protocol, ports in self.ports.items():
                holder, port = hold_port()
                broker.holders.append(holder)
                ports.append(port)
                listeners.append(f"{protocol}://127.0.0.1:{port}")
            broker.settings["listen"] = {"listeners": listeners}
            broker.settings["tls"] = authority.settings(f"broker-{broker_id}")

    def bootstrap(self, protocol: str = "SASL_SSL") -> str:
        """host:port of all brokers' listeners of that protocol."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports[protocol])

    def set_users(self, **passwords: str) -> None:
        """Set users by our own command; without any: those of PASSWORDS."""
        for user, password in (passwords or PASSWORDS).items():
            words = ["set", user, "--hosts", self.nodes.hosts, "--peer-secret", str(self.cluster.secret_path)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
                assert main(["users", *words]) == 0

    def output(self) -> str:
        """What all brokers have logged."""
        return "".join(broker.output_path.read_text() for broker in self.cluster.brokers.values())

    # -- settings of clients ---------------------------------------------------------------------------------

    def java(self, mechanism: str, user: str, password: str = "") -> dict[str, str]:
        """Settings of Kafka's own client: a user's, or a certificate's where the mechanism is "SSL"."""
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.file)}
        if mechanism == "SSL":
            return {
                "bootstrap.servers": self.bootstrap("SSL"),
                "security.protocol": "SSL",
                **trusted,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.authority.both(user)),
            }
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        words = f'username="{user}" password="{password or PASSWORDS[user]}"'
        return {
            "bootstrap.servers": self.bootstrap(),
            "security.protocol": "SASL_SSL",
            **trusted,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {words};",
        }

    def java_file(self, folder: Path, mechanism: str, user: str, password: str = "") -> Path:
        """Write Kafka's settings of a client to a file, and return it."""
        path = folder / f"{mechanism}-{user}.properties"
        found = self.java(mechanism, user, password)
        path.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
        return path

    def confluent(self, mechanism: str, user: str, password: str = "") -> dict[str, Any]:
        """Settings of librdkafka."""
        found: dict[str, Any] = {"ssl.ca.location": str(self.authority.file), "log_level": 0}
        if mechanism == "SSL":
            certificate, key = self.authority.issue(user)
            return {
                **found,
                "bootstrap.servers": self.bootstrap("SSL"),
                "security.protocol": "SSL",
                "ssl.certificate.location": str(certificate),
                "ssl.key.location": str(key),
            }
        return {
            **found,
            "bootstrap.servers": self.bootstrap(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
        }

    def python(self, mechanism: str, user: str, password: str = "") -> dict[str, Any]:
        """Settings of kafka-python."""
        found: dict[str, Any] = {"ssl_cafile": str(self.authority.file)}
        if mechanism == "SSL":
            certificate, key = self.authority.issue(user)
            return {
                **found,
                "bootstrap_servers": self.bootstrap("SSL"),
                "security_protocol": "SSL",
                "ssl_certfile": str(certificate),
                "ssl_keyfile": str(key),
            }
        return {
            **found,
            "bootstrap_servers": self.bootstrap(),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password or PASSWORDS[user],
        }
