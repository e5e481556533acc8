"""Spark at a cluster that is dialled by TLS and asks who is there; and which options are refused for it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.changelog.options import read_options as read_changelog
from pipeline.errors import OptionError
from pipeline.sink.options import read_options as read_sink
from pipeline.topics.options import Query
from pipeline.topics.options import read_options as read_topics
from quorum.cli.main import main
from quorum.config.sasl_users import user_line
from tests.support.broker_cluster import BrokerCluster
from tests.support.certificates import Authority
from tests.support.nodes import hold_port
from tests.support.secure_nodes import SecureNodes

PASSWORDS = {"spark": "of-spark-9d2f", "broker": "of-brokers-77aa"}


class Secured:
    """A node that requires SASL and a broker whose clients come by SASL_SSL, both by TLS."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "pki")
        for name, password in PASSWORDS.items():
            write(folder / name, password)
        write(folder / "users", "\n".join(user_line(*each) for each in PASSWORDS.items()))
        self.folder = folder
        security = {"sasl_users_file": str(folder / "users"), "enforce_auth_schemes": ["sasl"]}
        self.nodes = SecureNodes(self.authority, tls={"client_auth": "none"}, security=security)
        self.cluster = BrokerCluster(
            brokers=1,
            quorum=self.nodes,
            settings={
                "quorum": {
                    "hosts": self.nodes.secure_hosts.split(","),
                    "ssl": True,
                    "sasl_username": "broker",
                    "sasl_password_file": str(folder / "broker"),
                },
                "sasl": {"enabled_mechanisms": ["SCRAM-SHA-512"]},
                "tls": self.authority.settings("broker"),
            },
        )
        holder, self.port = hold_port()
        broker = self.cluster.brokers[1]
        broker.holders.append(holder)
        broker.settings["listen"] = {"listeners": [f"SASL_SSL://127.0.0.1:{self.port}"]}

    def brokers(self) -> dict[str, str]:
        """Options of sources and sinks for brokers."""
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.port}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.ca.location": str(self.authority.file),
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "spark",
            "quorate.passwordFile": str(self.folder / "spark"),
        }

    def quorum(self) -> dict[str, str]:
        """Options of the sink for the quorum."""
        return {
            "quorate.ca": str(self.authority.file),
            "quorate.sasl": "spark",
            "quorate.saslPasswordFile": str(self.folder / "spark"),
        }


def write(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(f"{text}\n")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("secured"))
    with found.cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(f"{PASSWORDS['spark']}\n"))
        dialled = ["--hosts", found.nodes.secure_hosts, "--ca", str(found.authority.file)]
        proof = ["--sasl", "broker", "--password-file", str(found.folder / "broker")]
        assert main(["users", "set", "spark", *dialled, *proof]) == 0
        dialled = ["--bootstrap", f"127.0.0.1:{found.port}", "--ca", str(found.authority.file)]
        proof = ["--sasl", "spark", "--password-file", str(found.folder / "spark")]
        assert main(["topics", "create", "t", *dialled, *proof, "--mechanism", "SCRAM-SHA-512"]) == 0
        yield found


def test_spark_writes_and_reads_by_sasl_ssl_and_shows_no_password(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([(f"v{number}",) for number in range(20)], "value STRING")
    writer = rows.write.format("quorate").mode("append").options(**secured.brokers(), **secured.quorum())
    writer.options(topic="t", stagingLocation=str(tmp_path), **{"quorate.sink": "secured"}).save()
    read = spark.read.format("quorate").options(**secured.brokers(), subscribe="t").load()
    assert {bytes(row.value).decode() for row in read.collect()} == {f"v{number}" for number in range(20)}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        read.explain(mode="extended")
    assert "quorate" in printed.getvalue()
    assert not [each for each in PASSWORDS.values() if each in printed.getvalue()]


GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
SINK = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
HTTPS = {"quorate.admin": "https://127.0.0.1:1"}


def topics(options: dict[str, str]) -> object:
    return read_topics({name.lower(): value for name, value in {**GIVEN, **options}.items()}, Query.BATCH)


def sink(options: dict[str, str]) -> object:
    return read_sink({name.lower(): value for name, value in {**SINK, **options}.items()}, stream=False)


@pytest.mark.parametrize(
    ("read", "options", "message"),
    [
        (
            topics,
            {"kafka.sasl.password": "p4ss"},
            r"password = '\*\*\*': would be seen in plans",
        ),
        (
            topics,
            {"kafka.sasl.jaas.config": "p4ss"},
            "would be seen .*quorate.passwordFile",
        ),
        (sink, {"kafka.ssl.key.password": "p4ss"}, "would be seen in plans"),
        (topics, {"kafka.security.protocol": "tls"}, "is no protocol .give one of plaintext, ssl"),
        (topics, {"kafka.security.protocol": "SSL"}, "ca.location = None: kafka.security.protocol is ssl"),
        (
            topics,
            {"kafka.security.protocol": "sasl_plaintext"},
            "username = None: .* is sasl_plaintext",
        ),
        (topics, {"kafka.sasl.username": "u"}, "quorate.passwordFile is not set, and kafka.sasl.username is"),
        (
            sink,
            {"quorate.passwordFile": "none"},
            "username is not set, and quorate.passwordFile is",
        ),
        (sink, {"kafka.ssl.ca.location": "none"}, "ca.location = 'none': cannot be read"),
        (sink, {"kafka.ssl.certificate.location": "c"}, "kafka.ssl.key.location is not given .give both"),
        (sink, {"quorate.key": "k"}, "quorate.cert is not given .give both"),
        (sink, {"quorate.sasl": "u"}, "quorate.saslPasswordFile is not set, and quorate.sasl is"),
        (sink, {"quorate.tokenFile": "t"}, "the sink has no such option"),
        (read_changelog, HTTPS, "'https://127.0.0.1:1' is by TLS .give https:// and quorate.ca"),
        (read_changelog, {**HTTPS, "quorate.cert": "c"}, "quorate.key is not given"),
    ],
)
def test_half_given_options_and_passwords_are_refused(
    read: Callable[[dict[str, str]], object], options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        read(options)
    assert "p4ss" not in str(refused.value)


def test_a_mechanism_must_be_one_of_a_name_and_a_password(tmp_path: Path) -> None:
    write(tmp_path / "p", "of-spark")
    given = {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.username": "u"}
    given |= {"quorate.passwordFile": str(tmp_path / "p")}
    for read in (topics, sink):
        with pytest.raises(OptionError, match="'GSSAPI': is no mechanism"):
            read({**given, "kafka.sasl.mechanism": "GSSAPI"})
        found = read({**given, "kafka.sasl.mechanism": "PLAIN"})
        assert "of-spark" not in repr(found)
    authority = Authority(tmp_path / "pki")
    assert read_changelog({**HTTPS, "quorate.ca": str(authority.file)}).tls is not None
    with pytest.raises(OptionError, match="is not by TLS"):
        read_changelog({"quorate.ca": str(authority.file)})
