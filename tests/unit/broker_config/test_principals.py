"""Subjects of certificates become principals by Kafka's rules."""

from __future__ import annotations

import pytest

from broker.config.principals import MappingRule, principal_of

SUBJECT = "CN=Alice.Smith,OU=ops,O=x\\, y"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], f"User:{SUBJECT}"),
        (["RULE:^CN=([^,]+).*$/$1/L", "DEFAULT"], "User:alice.smith"),
        (["RULE:^CN=([^,]+),OU=([^,]+).*$/$2@$1/U"], "User:OPS@ALICE.SMITH"),
        (["RULE:^CN=bob$/b/", "RULE:.*O=(.).*/$1/"], "User:x"),
        (["RULE:^CN=bob$/b/"], None),
        (["RULE:^CN=(.*?),.*$/a\\/b/"], "User:a\\/b"),
    ],
)
def test_the_first_rule_that_is_for_a_subject_counts(rules: list[str], principal: str | None) -> None:
    assert principal_of(SUBJECT, [MappingRule.parse(rule) for rule in rules]) == principal


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default", "neither DEFAULT"),
        ("RULE:^CN=(.*)$", "neither DEFAULT"),
        ("RULE:^CN=(.*)$/$1/X", "neither DEFAULT"),
        ("RULE:^CN=(/$1/", "cannot be read"),
        ("RULE:^CN=(.*)$/$2/", "names group 2, and its pattern has 1"),
    ],
)
def test_a_wrong_rule_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MappingRule.parse(text)
