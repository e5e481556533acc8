"""Order, verdict and sentence of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from quorum.health.findings import (
    Check,
    Found,
    Report,
    Severity,
    Skipped,
    as_fields,
    examine,
    report,
    skip_all,
)


def check(
    name: str, severity: Severity, judge: Callable[[None], Iterable[Found] | Skipped] | None = None
) -> Check[None]:
    found = Found("node 1", f"{name} is wrong", "mend it", "mend")
    return Check(name, severity, "it", "it matters", judge or (lambda _: [found]))


def reported(*severities: Severity) -> Report:
    checks = [check(f"{index}-{each.value}", each) for index, each in enumerate(severities)]
    return report("c0ffee", examine(checks, None))


def test_nothing_found_is_healthy() -> None:
    found = reported()
    assert (found.verdict, found.sentence, found.findings) == ("healthy", "healthy", ())


def test_infos_alone_are_healthy() -> None:
    found = reported(Severity.INFO)
    assert (found.verdict, found.sentence) == ("healthy", "healthy")
    assert len(found.findings) == 1
    assert found.check == ""


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ((Severity.WARNING, Severity.INFO), "warning"),
        ((Severity.INFO, Severity.WARNING, Severity.ERROR), "error"),
    ],
)
def test_the_worst_finding_decides(severities: tuple[Severity, ...], verdict: str) -> None:
    assert reported(*severities).verdict == verdict
    assert reported(*severities).check.endswith(verdict)


def test_the_worst_comes_first_and_equals_stay_in_order() -> None:
    found = reported(Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.WARNING)
    assert [each.check for each in found.findings] == ["2-error", "1-warning", "3-warning", "0-info"]


def test_the_sentence_is_the_worst_finding_with_its_remedy() -> None:
    assert reported(Severity.WARNING).sentence == "0-warning is wrong: mend it"
    many = reported(Severity.INFO, Severity.WARNING, Severity.ERROR)
    assert many.sentence == "2-error is wrong: mend it (and 1 more)"


def test_a_finding_may_be_worse_than_its_check() -> None:
    worse = Found("node 1", "it is over", "mend it", severity=Severity.ERROR)
    found = report(None, examine([check("late", Severity.WARNING, lambda _: [worse])], None))
    assert found.verdict == "error"


def test_every_check_has_an_outcome() -> None:
    checks = [
        check("bad", Severity.ERROR),
        check("good", Severity.ERROR, lambda _: []),
        check("unknown", Severity.ERROR, lambda _: Skipped("nobody answers")),
    ]
    found = report(None, examine(checks, None), skip_all([check("late", Severity.INFO)], "no time"))
    assert [tuple(each) for each in found.checks] == [
        ("bad", "found", None),
        ("good", "ok", None),
        ("unknown", "skipped", "nobody answers"),
        ("late", "skipped", "no time"),
    ]


def test_a_report_as_json_has_the_fields_of_the_contract() -> None:
    fields = as_fields(reported(Severity.WARNING))
    assert list(fields) == ["verdict", "sentence", "cluster_id", "findings", "checks"]
    assert fields["findings"] == [
        {
            "check": "0-warning",
            "severity": "warning",
            "subject": "node 1",
            "what": "0-warning is wrong",
            "why": "it matters",
            "remedy": "mend it",
            "command": "mend",
        }
    ]
    assert fields["checks"] == [{"check": "0-warning", "outcome": "found", "reason": None}]
