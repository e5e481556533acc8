"""The candidate for coordinator of groups in every broker, and what it is set to.

Which broker is the coordinator, every candidate knows from the node that it watches; so any broker can say it
to a consumer.
Source: ARCHITECTURE.md, "Life of a consumer group", "Life of a controller"; docs/internals/requirements.md,
[4.x]; section [groups] of broker.toml.
"""

from __future__ import annotations

from typing import Final

from broker.config.sections import GroupsSection
from broker.core.cluster_view import ClusterView
from broker.core.groups.model import GroupLimits, GroupOptions
from broker.groups.term import GroupsTerm
from broker.groups.transactions import TransactionGround
from controller.election.candidate import Candidate
from controller.election.plans import COORDINATOR_OFFICE
from quorum.client import Client
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.metadata.trust import Trust

#: One candidate in one broker, for one quorum session.
Coordinator = Candidate[CoordinatorEpoch, GroupsTerm]
_MINUTE_MS: Final = 60_000


def coordinator_of(
    client: Client,
    broker_id: int,
    options: GroupOptions,
    view: ClusterView,
    trust: Trust,
    ground: TransactionGround,
) -> Coordinator:
    """Return the candidate of a broker; the view tells its terms when topics may have changed."""
    return Candidate(
        client,
        broker_id,
        COORDINATOR_OFFICE,
        trust,
        lambda mandate: GroupsTerm(client, mandate, options, view, ground),
    )


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
            assignment_interval_ms=section.group_consumer_assignment_interval_ms,
        ),
        groups_max=section.groups_max,
        groups_bytes_max=section.groups_bytes_max,
        rebalance_retries_max=section.rebalance_retries_max,
        may_upgrade=section.group_consumer_migration_policy in ("bidirectional", "upgrade"),
        may_downgrade=section.group_consumer_migration_policy in ("bidirectional", "downgrade"),
        offsets_retention_ms=section.offsets_retention_minutes * _MINUTE_MS,
    )
