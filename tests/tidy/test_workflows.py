"""The workflows and forms of the forge: they parse, pin actions by hash, and may do what they need alone.

Source: docs/internals/releasing.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy.rules import REPOSITORY
from tests.tidy.test_repository import make_targets

FORGE = REPOSITORY / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
FORMS = ("bug.yml", "feature.yml")
#: {(workflow, job): what it may do}; all others may read the repository alone
RIGHTS = {
    ("release.yml", "attest"): {"attestations": "write", "contents": "read", "id-token": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
}


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def open_pins(text: str) -> list[str]:
    """Lines that use an action by anything but a commit's full hash with its version beside it."""
    used = re.findall(r"^.*\buses:.*$", text, flags=re.MULTILINE)
    pinned = re.compile(r"\s*(- )?uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} +# v\d+\.\d+\.\d+")
    return [line.strip() for line in used if not pinned.fullmatch(line)]


def unequal_pins(texts: list[str]) -> set[str]:
    """Actions that are pinned to more than one commit."""
    pins = {pair for text in texts for pair in re.findall(r"uses: ([\w./-]+)@(\w+)", text)}
    names = [name for name, _ in pins]
    return {name for name in names if names.count(name) > 1}


def make_calls(workflow: dict[Any, Any]) -> set[str]:
    runs = "\n".join(step["run"] for step in steps(workflow) if "run" in step)
    return set(re.findall(r"^make ([a-z-]+)", runs, flags=re.MULTILINE))


def test_there_are_both_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(path: Path) -> None:
    text = path.read_text()
    assert sum("uses" in step for step in steps(read(path))) == text.count("uses:") > 0
    assert open_pins(text) == []


def test_an_action_has_one_pin() -> None:
    assert unequal_pins([path.read_text() for path in WORKFLOWS]) == set()


def test_an_open_or_second_pin_is_found() -> None:
    pin = f"      - uses: a/b@{40 * '0'}   # v1.2.3"
    short = "      - uses: a/b@0000000   # v1.2.3"
    tag = "        uses: a/b@v1"
    unnamed = pin.removesuffix("   # v1.2.3")
    found = open_pins(f"{pin}\n{short}\n{tag}\n{unnamed}")
    assert found == [line.strip() for line in (short, tag, unnamed)]
    assert unequal_pins([pin, pin]) == set()
    assert unequal_pins([pin, short]) == {"a/b"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_may_do_what_they_need_and_end(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"] == RIGHTS.get((path.name, name), {"contents": "read"}), name
        assert 0 < job["timeout-minutes"] <= 90, name


def judged(folder: Path) -> subprocess.CompletedProcess[str]:
    """What zizmor says of workflows, without asking a network."""
    command = [str(Path(sys.executable).with_name("zizmor")), "--offline", "--no-progress", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_workflows_have_no_known_weakness() -> None:
    found = judged(FORGE)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_kept_token_and_a_pasted_title_are_found(tmp_path: Path) -> None:
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    text = (FORGE / "workflows/ci.yml").read_text()
    text = text.replace("persist-credentials: false", "fetch-depth: 1")
    text = text.replace("run: make test", "run: echo ${{ github.event.pull_request.title }}")
    (folder / "ci.yml").write_text(text)
    found = judged(tmp_path)
    assert found.returncode != 0
    assert "artipacked" in found.stdout
    assert "template-injection" in found.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_a_developer_runs(path: Path) -> None:
    called = make_calls(read(path))
    assert "test" in called
    assert called <= make_targets()


def test_what_is_published_was_tested_and_attested() -> None:
    jobs = read(FORGE / "workflows/release.yml")["jobs"]
    assert jobs["publish"]["needs"] == "attest"
    assert jobs["publish"]["environment"] == "pypi"
    assert set(jobs["attest"]["needs"]) == set(jobs) - {"attest", "publish"}


@pytest.mark.parametrize("name", FORMS)
def test_forms_have_what_the_forge_asks(name: str) -> None:
    form = read(FORGE / "ISSUE_TEMPLATE" / name)
    assert form["name"]
    assert form["description"]
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert all(each["type"] in {"textarea", "input"} and each["attributes"]["label"] for each in fields)
    ids = [each["id"] for each in fields]
    assert len(set(ids)) == len(ids) > 0
    assert any(each.get("validations", {}).get("required") for each in fields)


def test_a_bug_is_reported_with_a_bundle() -> None:
    form = (FORGE / "ISSUE_TEMPLATE/bug.yml").read_text()
    assert "`quorate bundle`" in form
    assert "SECURITY.md" in form
    assert read(FORGE / "ISSUE_TEMPLATE/config.yml") == {"blank_issues_enabled": False}
