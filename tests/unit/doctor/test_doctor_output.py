"""What `quorate doctor` prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorum.cli.commands.doctor import describe
from quorum.cli.main import main
from quorum.health.findings import Checked, Examined, Finding, Severity, report


def finding(check: str, subject: str, command: str | None = None) -> Finding:
    return Finding(check, Severity.WARNING, subject, f"{subject} is wrong", "it matters", "mend it", command)


def test_a_finding_says_what_why_and_what_helps() -> None:
    examined = Examined(
        (finding("group-lag", "group a\x1b[2J", "quorate groups list"),),
        (Checked("group-lag", "found"), Checked("other", "ok"), Checked("third", "skipped", "no time")),
    )
    assert describe(report("c0ffee", examined)) == [
        "warning group-lag: group a\\x1b[2J is wrong",
        "  why     it matters",
        "  remedy  mend it",
        "  command quorate groups list",
        "",
        "warning: 2 checks made, 1 found something, 1 could not be made (--json says why)",
    ]


def test_of_many_findings_of_one_check_the_first_are_shown() -> None:
    many = [finding("partition-offline", f"orders-{number}") for number in range(8)]
    lines = describe(report(None, Examined((*many, finding("node-down", "node 2")))))
    assert sum(line.startswith("warning partition-offline") for line in lines) == 5
    assert "… and 3 more of partition-offline (--json has all)" in lines
    assert any(line.startswith("warning node-down") for line in lines)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--lag-max", "-1"], "--lag-max -1 is negative"),
        (["--lag-max", "many"], "argument --lag-max"),
        (["--admin", "nowhere"], "--admin 'nowhere' is not the address"),
        (["--config", "missing.toml"], "--config missing.toml is no file"),
        (["--data-dir", "."], "--data-dir . holds no node.toml or broker.toml"),
        (["--json", "--nagios"], "not allowed with argument"),
        (["--cert", "file"], "--cert and --key need each other"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    words: list[str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *words]) == 2
    told = capsys.readouterr().err
    assert problem in told
    assert "\nremedy: " in told


def test_a_monitor_reads_unknown_where_the_command_cannot_be_carried_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--nagios", "--config", "missing|toml"]) == 3
    assert (
        capsys.readouterr().out
        == "UNKNOWN - --config missing/toml is no file; name a node.toml or broker.toml\n"
    )
