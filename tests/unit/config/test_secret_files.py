"""Who else may read a file with a secret."""

from __future__ import annotations

import pytest

from quorum.config.secrets import EVERY_USER, OTHERS, closed_bits


@pytest.mark.parametrize(
    ("closed_to", "owner_id", "user_id", "mode", "refused"),
    [
        (OTHERS, 1000, 1000, 0o600, False),
        (OTHERS, 1000, 1000, 0o640, True),
        # what Kubernetes mounts: root's, and readable for the group of the pod
        (OTHERS, 0, 10001, 0o440, False),
        (OTHERS, 0, 10001, 0o460, True),
        (OTHERS, 0, 10001, 0o444, True),
        # root's own files are root's alone
        (OTHERS, 0, 0, 0o440, True),
        (EVERY_USER, 0, 10001, 0o444, True),
        (0, 0, 10001, 0o444, False),
    ],
)
def test_a_group_may_read_what_root_gave_it(
    closed_to: int, owner_id: int, user_id: int, mode: int, refused: bool
) -> None:
    assert bool(mode & closed_bits(closed_to, owner_id, user_id)) is refused
