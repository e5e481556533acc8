"""Every gap of the table of requests has a reason, which docs/reference/compatibility.md tells."""

from __future__ import annotations

import pytest

from tests.compatibility.absent import REQUESTS_ABSENT, VERSIONS_ABOVE, VERSIONS_BELOW
from tests.compatibility.page import gaps
from tests.compatibility.tried import tried
from tests.tidy.rules import REPOSITORY


@pytest.mark.parametrize(
    ("gap", "reasons"), list(zip(gaps(), (REQUESTS_ABSENT, VERSIONS_BELOW, VERSIONS_ABOVE), strict=True))
)
def test_every_gap_has_a_reason_and_every_reason_a_gap(gap: set[int], reasons: dict[int, str]) -> None:
    assert gap == set(reasons), "say why in tests/compatibility/absent.py, or take out what is there by now"


def test_tests_that_the_page_names_exist() -> None:
    assert [each.where for each in tried() if not (REPOSITORY / each.where).is_file()] == []
