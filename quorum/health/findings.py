"""Findings, the checks that find them, and the verdict over all of them.

One model for everything that says how a cluster is: `quorate doctor`, the console and its verdict. A check is
a row of a table: a name, how bad what it finds is, what it looks at, why that matters, and a pure function
from what was seen to what was found. Decides order, verdict and its sentence. Pure; no state.

Source: docs/operate/doctor.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

Seen = TypeVar("Seen")


class Severity(Enum):
    """How bad a finding is; the worst comes first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}
#: {the worst severity: verdict}
_VERDICTS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "healthy"}
#: exit code of `quorate doctor` by verdict
EXIT_CODES: Final = {"healthy": 0, "error": 1, "warning": 3}
#: what a monitor reads: word and exit code by verdict
MONITORED: Final = {"healthy": ("OK", 0), "warning": ("WARNING", 1), "error": ("CRITICAL", 2)}


class Found(NamedTuple):
    """What a check found at one place.

    Attributes:
        subject: the place, as "node 2", "broker 3", "orders-0", "group billing", or a file.
        what: what is wrong, a sentence without a full stop.
        remedy: what to do, another one.
        command: to copy, if one does it.
        severity: where it differs from that of the check.
    """

    subject: str
    what: str
    remedy: str
    command: str | None = None
    severity: Severity | None = None


class Skipped(NamedTuple):
    """A check that could not be made.

    Attributes:
        reason: why not.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Check(Generic[Seen]):
    """One check.

    Attributes:
        name: as in reports.
        severity: of what it finds.
        looks_at: what it finds, for the table of checks.
        why: why that matters, a sentence without a full stop.
        judge: what was seen → what is wrong with it, or why that is not known.
    """

    name: str
    severity: Severity
    looks_at: str
    why: str
    judge: Callable[[Seen], Iterable[Found] | Skipped]


class Finding(NamedTuple):
    """One thing that is wrong."""

    check: str
    severity: Severity
    subject: str
    what: str
    why: str
    remedy: str
    command: str | None


class Checked(NamedTuple):
    """What became of one check.

    Attributes:
        outcome: ok, found or skipped.
        reason: why it was skipped, else None.
    """

    check: str
    outcome: str
    reason: str | None = None


class Examined(NamedTuple):
    """Findings and outcomes of some checks."""

    findings: tuple[Finding, ...] = ()
    checks: tuple[Checked, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found, the worst first.

    Attributes:
        verdict: healthy (nothing, or infos), warning or error.
        sentence: "healthy", or the worst finding with its remedy.
        cluster_id: None: it is not known.
    """

    verdict: str
    sentence: str
    cluster_id: str | None
    findings: tuple[Finding, ...]
    checks: tuple[Checked, ...]

    @property
    def check(self) -> str:
        """The check that the verdict is from; "" if it is healthy."""
        return "" if self.verdict == "healthy" else self.findings[0].check


def examine(checks: Sequence[Check[Seen]], seen: Seen) -> Examined:
    """Make all checks of a table.

    Args:
        checks: the table.
        seen: what they look at.
    """
    findings: list[Finding] = []
    outcomes: list[Checked] = []
    for check in checks:
        found = check.judge(seen)
        if isinstance(found, Skipped):
            outcomes.append(Checked(check.name, "skipped", found.reason))
            continue
        rows = [
            Finding(
                *(check.name, each.severity or check.severity, each.subject, each.what, check.why),
                *(each.remedy, each.command),
            )
            for each in found
        ]
        findings += rows
        outcomes.append(Checked(check.name, "found" if rows else "ok"))
    return Examined(tuple(findings), tuple(outcomes))


def skip_all(checks: Sequence[Check[Seen]], reason: str) -> Examined:
    """Say of every check of a table that it was not made, and why."""
    return Examined(checks=tuple(Checked(check.name, "skipped", reason) for check in checks))


def report(cluster_id: str | None, *parts: Examined) -> Report:
    """Put parts together and say how the cluster is."""
    findings = [finding for part in parts for finding in part.findings]
    # Within a severity the order of the tables says what is worse.
    findings.sort(key=lambda finding: _RANK[finding.severity])
    checks = tuple(checked for part in parts for checked in part.checks)
    verdict = _VERDICTS[findings[0].severity] if findings else "healthy"
    return Report(verdict, _sentence(verdict, findings), cluster_id, tuple(findings), checks)


def _sentence(verdict: str, findings: Sequence[Finding]) -> str:
    if verdict == "healthy":
        return "healthy"
    worst = findings[0]
    others = sum(each.severity is not Severity.INFO for each in findings) - 1
    more = f" (and {others} more)" if others else ""
    return f"{worst.what}: {worst.remedy}{more}"


def as_fields(found: Report) -> dict[str, object]:
    """Return a report as the object that `--json` prints."""
    return {
        "verdict": found.verdict,
        "sentence": found.sentence,
        "cluster_id": found.cluster_id,
        "findings": [{**each._asdict(), "severity": each.severity.value} for each in found.findings],
        "checks": [each._asdict() for each in found.checks],
    }
