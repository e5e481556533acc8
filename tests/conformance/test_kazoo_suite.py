"""kazoo's own tests, unchanged, against nodes: SASL DIGEST-MD5, digest, TLS; the rest in the long run.

tests/support/kazoo_cluster.py stands in for the cluster of Java servers that kazoo's harness starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import kazoo.tests
import pytest

from tests.support.nodes import REPOSITORY, clean_environment, tail

#: Classes and modules of kazoo.tests that prove something.
PROVING = ("test_sasl", "test_client::TestAuthentication", "test_client::TestSSLClient")
#: Modules whose packages are not there: objgraph, eventlet, gevent.
ELSEWHERE = {"test_cache", "test_eventlet_handler", "test_gevent_handler"}
#: {test: why it cannot apply}
DIFFERENT = {
    "TestReconfig::test_add_remove_observer": "there are no observers",
    "TestReconfig::test_no_super_auth": "it adds an observer, which is refused before its right is asked for",
}
#: Skipped by kazoo: there is no Kerberos here, and nodes do not speak it.
KERBEROS = {
    "TestSASLGSSAPIAuthentication::test_connect_gssapi_auth",
    "TestSASLGSSAPIAuthentication::test_invalid_gssapi_auth",
}


def outcomes(folder: Path, *names: str, deadline_s: float) -> dict[str, str]:
    """Run tests of kazoo; returns {class::test: "passed", "skipped" or "failed"}."""
    report, output = folder / "report.xml", folder / "output.log"
    options = ["-p", "tests.support.kazoo_cluster", "-p", "no:cacheprovider", "-c", os.devnull]
    words = [*options, "--rootdir", str(folder), f"--junitxml={report}", "--pyargs"]
    with output.open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, *(f"kazoo.tests.{name}" for name in names)],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=REPOSITORY,
            env=clean_environment(),
            timeout=deadline_s,
            check=False,
        )
    assert report.exists(), tail(output)
    found = {}
    for case in ET.parse(report).iter("testcase"):
        kind = next((each.tag for each in case if each.tag in ("failure", "error", "skipped")), "passed")
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        found[name] = {"failure": "failed", "error": "failed"}.get(kind, kind)
    return found


def test_kazoos_tests_of_proofs_pass(tmp_path: Path) -> None:
    found = outcomes(tmp_path, *PROVING, deadline_s=240)
    assert {name for name, outcome in found.items() if outcome == "skipped"} == KERBEROS
    assert {name for name, outcome in found.items() if outcome == "failed"} == set(), tail(
        tmp_path / "output.log"
    )
    assert len(found) == 14


@pytest.mark.long
def test_kazoos_whole_suite_passes(tmp_path: Path) -> None:
    (folder,) = kazoo.tests.__path__
    modules = sorted(each.stem for each in Path(folder).glob("test_*.py") if each.stem not in ELSEWHERE)
    found = outcomes(tmp_path, *modules, deadline_s=900)
    failed = {name for name, outcome in found.items() if outcome == "failed"}
    assert failed == set(DIFFERENT), tail(tmp_path / "output.log")
    assert len(found) > 250
