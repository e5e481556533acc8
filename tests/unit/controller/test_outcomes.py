"""An assignment that no write can carry."""

from __future__ import annotations

from controller.core.outcomes import ASSIGNMENT_BYTES_MAX, too_large
from quorum.metadata.records import TopicRecord


def test_an_assignment_that_fits_no_write_is_refused_with_its_size() -> None:
    assert too_large(TopicRecord(None, dict.fromkeys(range(10_000), (1_001, 1_002, 1_003)))) is None
    problem = too_large(TopicRecord(None, dict.fromkeys(range(10_000), tuple(range(1_000, 1_020)))))
    assert problem is not None
    assert f"at most {ASSIGNMENT_BYTES_MAX} are allowed" in problem.message
