"""What a coordinator of groups is set to.

Source: section [groups] of broker.toml; the names are Kafka's.
"""

from __future__ import annotations

from typing import Final

from broker.config.broker import GroupsSection
from broker.core.groups.model import GroupLimits, GroupOptions

_MINUTE_MS: Final = 60_000


def group_options(section: GroupsSection) -> GroupOptions:
    """Return the options that a section of broker.toml sets."""
    return GroupOptions(
        GroupLimits(
            session_timeout_min_ms=section.group_min_session_timeout_ms,
            session_timeout_max_ms=section.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=section.group_initial_rebalance_delay_ms,
            members_max=section.group_max_size,
            group_bytes_max=section.group_bytes_max,
            consumer_session_timeout_ms=section.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=section.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=section.group_consumer_assignment_interval_ms,
        ),
        groups_max=section.groups_max,
        groups_bytes_max=section.groups_bytes_max,
        rebalance_retries_max=section.rebalance_retries_max,
        may_upgrade=section.group_consumer_migration_policy in ("bidirectional", "upgrade"),
        may_downgrade=section.group_consumer_migration_policy in ("bidirectional", "downgrade"),
        offsets_retention_ms=section.offsets_retention_minutes * _MINUTE_MS,
    )
