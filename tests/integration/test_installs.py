"""The wheel with dependencies of its own: the lowest and the newest that pyproject.toml allows.

The lowest are tried with the Python that runs the tests, the newest with each of PYTHONS: versions or paths
of interpreters, that one when absent (`make installs PYTHONS="3.12 3.13"`).
Source: docs/internals/releasing.md.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.broker_records import quiet, reading
from tests.support.distributions import Environment, InstalledCluster, build_wheel, resolved
from tests.support.nodes import REPOSITORY, eventually

pytestmark = pytest.mark.long

PYTHONS = os.environ.get("PYTHONS", sys.executable).split()
EXTRAS = ("backup", "brokers", "certs", "oauth")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(REPOSITORY, tmp_path_factory.mktemp("dist"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("resolution", "python"),
    [("lowest-direct", sys.executable), *(("highest", python) for python in PYTHONS)],
)
def test_the_wheel_serves_with_dependencies_of_its_own(
    wheel: Path, resolution: str, python: str, tmp_path: Path
) -> None:
    environment = resolved(tmp_path / "venv", wheel, python, EXTRAS, resolution)
    if resolution == "lowest-direct":
        assert versions(environment) == lower_bounds()
    cluster = InstalledCluster(environment, tmp_path / "cluster")
    try:
        cluster.start()
        with cluster.shown():
            znodes_and_records_come_back(cluster)
            commands_of_the_extras_work(environment, cluster, tmp_path)
    finally:
        cluster.close()


def lower_bounds() -> dict[str, Version]:
    """{distribution: the lowest version that pyproject.toml allows}, without those of tools and tests."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = project["dependencies"] + [
        each for extra in EXTRAS for each in project["optional-dependencies"][extra]
    ]
    requirements = [Requirement(each) for each in named]
    return {
        each.name: min(Version(bound.version) for bound in each.specifier if bound.operator in {">=", "=="})
        for each in requirements
    }


def versions(environment: Environment) -> dict[str, Version]:
    """{distribution: its version in the environment}, of those that pyproject.toml names."""
    names = list(lower_bounds())
    program = f"from importlib.metadata import version\nfor each in {names!r}: print(version(each))"
    found = environment.python_prints(program).split()
    return dict(zip(names, map(Version, found), strict=True))


def znodes_and_records_come_back(cluster: InstalledCluster) -> None:
    cluster.zookeeper.create("/installed", b"value")
    assert cluster.zookeeper.get("/installed")[0] == b"value"
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic("installed", 1, 1)])["installed"].result(DEADLINE_S)
    for codec in CODECS:
        producer = Producer({**quiet(cluster.bootstrap), "compression.type": codec})
        producer.produce("installed", codec.encode() * 100)
        assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(reading(cluster.bootstrap))
    consumer.assign([TopicPartition("installed", 0, 0)])
    found = eventually(lambda: consumer.consume(len(CODECS), 5.0), DEADLINE_S, "records come back")
    consumer.close()
    assert [record.value() for record in found] == [codec.encode() * 100 for codec in CODECS]


def commands_of_the_extras_work(environment: Environment, cluster: InstalledCluster, folder: Path) -> None:
    environment.quorate_prints("certs", "init", str(folder / "pki"))
    target = (folder / "kept").as_uri()
    environment.quorate_prints("backup", "--admin", cluster.nodes.admin_url(1), target)
    environment.python_prints("import broker.server.tokens")
