"""docs/operate/runbook.md: every alert and every check of doctor has a section, and alerts name theirs."""

from __future__ import annotations

import re

from broker.health.checks import CHECKS
from quorum.health.machine_checks import MACHINE_CHECKS
from quorum.health.process_checks import PROCESS_CHECKS
from quorum.health.quorum_checks import QUORUM_CHECKS
from tests.tidy.rules import REPOSITORY

PAGE = "docs/operate/runbook.md"
RULES = ("alerts.yml", "brokers-alerts.yml")
PARTS = ("You see", "Look", "Do", "Do not")


def sections() -> dict[str, str]:
    """{anchor of a section of the runbook that is about a symptom: its text}."""
    parts = re.split(r"^#+ (.+)$", (REPOSITORY / PAGE).read_text("utf-8"), flags=re.MULTILINE)
    texts = dict(zip(map(anchor, parts[1::2]), parts[2::2], strict=True))
    return {name: text for name, text in texts.items() if "**You see**" in text}


def anchor(heading: str) -> str:
    """What the site makes of a heading."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def seen(text: str) -> str:
    """What a section says that its reader sees: the paragraph, and no other."""
    return text[text.index("**You see**") :].partition("\n\n")[0]


def alerts() -> dict[str, str]:
    """{alert: its section, as its rule names it}."""
    rules = "".join((REPOSITORY / "deploy/observability" / name).read_text("utf-8") for name in RULES)
    named = {}
    for rule in rules.split("- alert: ")[1:]:
        (named[rule.split()[0]],) = re.findall(r"^ +runbook: (.+)$", rule, re.MULTILINE)
    return named


def test_each_alert_names_the_section_that_names_it() -> None:
    sees = {f"{PAGE}#{name}": seen(text) for name, text in sections().items()}
    named = alerts()
    assert {alert: place for alert, place in named.items() if f"`{alert}`" not in sees.get(place, "")} == {}
    told = set(re.findall(r"`(Quorate[A-Z]\w+)`", (REPOSITORY / PAGE).read_text("utf-8")))
    assert told - named.keys() == set()


def test_each_check_of_doctor_is_a_symptom() -> None:
    checks = {each.name for each in QUORUM_CHECKS} | {each.name for each in PROCESS_CHECKS}
    checks |= {each.name for each in MACHINE_CHECKS} | {each.name for each in CHECKS}
    told = {name for text in sections().values() for name in re.findall(r"`([a-z-]+)`", seen(text))}
    assert checks - told == set()


def test_each_section_has_all_its_parts_in_order() -> None:
    assert len(sections()) > 30
    for name, text in sections().items():
        places = [re.search(rf"^\*\*{part}\b[^*]*\*\*", text, re.MULTILINE) for part in PARTS]
        assert all(places), name
        order = [place.start() for place in places if place is not None]
        assert order == sorted(order), name
