"""The fences of the groups' coordinator: what keeps a stale coordinator, group or member from acting.

Each is one function that is called through this module, so that a simulation can switch it off.
Source: ARCHITECTURE.md, "Life of a consumer group"; KIP-345, KIP-848.
"""

from __future__ import annotations


def coordinator_epoch(version: int) -> int:
    """Return the version of /consumers/coordinator_epoch that every multi checks: no former one writes."""
    return version


def group_version(version: int) -> int:
    """Return the version of a group's znode that a multi is decided on; nothing passes a foreign write."""
    return version


def is_of_generation(asked: int, present: int) -> bool:
    """Say whether a member of the classic protocol speaks of its group's generation."""
    return asked == present


def is_of_member_epoch(asked: int, present: int) -> bool:
    """Say whether a member of KIP-848 speaks of the epoch that it has reached."""
    return asked == present


def may_answer(is_written: bool) -> bool:
    """Say whether an answer may leave: not before the multi is acknowledged that holds what it says."""
    return is_written
