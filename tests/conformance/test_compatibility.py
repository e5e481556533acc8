"""docs/reference/compatibility.md agrees with a running broker, and its data with Kafka's own classes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.local import brokers_in_thread
from broker.server.table import REQUESTS
from controller.wire.apis import ApiKey
from tests.clients.tours import FOLDER
from tests.compatibility.kafka import KAFKA, RELEASES
from tests.compatibility.page import PAGE
from tests.support.broker_wire import ask
from tests.support.kafka_jars import client_class_path

PROGRAM = Path(__file__).with_name("java") / "RequestVersions.java"
DEADLINE_S = 60.0
Ranges = dict[int, tuple[int, int]]


def ranges_on_the_page() -> Ranges:
    """What the page says about the listener of clients."""
    found: Ranges = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not re.match(r"\| \d+ \|", line):
            continue
        number, served = line.split("|")[1], line.split("|")[5]
        versions = [int(each) for each in re.findall(r"\d+", served)]
        if versions:
            advertised = versions[2] if "advertised from" in served else versions[0]
            found[int(number)] = advertised, max(versions)
    return found


@pytest.mark.parametrize("authorizer", ["", "AclAuthorizer"])
def test_a_running_broker_advertises_what_the_page_says(authorizer: str) -> None:
    security = {"authorizer_class_name": authorizer, "super_users": ["User:ANONYMOUS"]}
    with brokers_in_thread(1, settings={"security": security}) as running:
        answer = ask(running.bootstrap, ApiKey.API_VERSIONS, 0, {})
    advertised = {int(row.api_key): (row.min_version, row.max_version) for row in answer.api_keys}
    assert len(advertised) > 30
    with_lists = {int(each) for each, row in REQUESTS.items() if row.client is None and row.guarded}
    expected = ranges_on_the_page()
    assert with_lists <= expected.keys()
    assert advertised == {key: each for key, each in expected.items() if authorizer or key not in with_lists}


@pytest.mark.parametrize("release", RELEASES)
def test_the_versions_of_kafka_are_those_of_its_classes(tmp_path: Path, release: str) -> None:
    java = shutil.which("java")
    assert java is not None, "no java on PATH: run deploy/ensure-java.sh"
    path = client_class_path(FOLDER / "kafka-java" / "pom.xml", release, tmp_path)
    done = subprocess.run(
        [java, "-cp", path, str(PROGRAM)], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    known = [line.split() for line in done.stdout.splitlines()]
    column = 1 + RELEASES.index(release)
    assert {number: row[column] for number, row in KAFKA.items() if row[column] is not None} == {
        int(number): (int(low), int(high)) for number, _, low, high in known if int(high) >= 0
    }
    if release == RELEASES[-1]:
        assert {number: row.name for number, row in KAFKA.items()} == {int(row[0]): row[1] for row in known}
