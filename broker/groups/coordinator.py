"""The candidate for coordinator of groups in every broker, and what the server asks of it.

Which broker is the coordinator, every candidate knows from the node that it watches; so any broker can say it
to a consumer.
Source: control-plane design, "Coordinator", "Election"; seed [4.x].
"""

from __future__ import annotations

from broker.core.cluster_view import ClusterView
from broker.groups.errors import NotCoordinatorError
from broker.groups.options import GroupOptions
from broker.groups.status import GroupStatus
from broker.groups.term import Term
from controller.election.candidate import Candidate
from controller.election.plans import COORDINATOR_OFFICE
from quorum.client import Client
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.metadata.trust import Trust


class Coordinator:
    """One candidate in one broker, for one quorum session."""

    def __init__(
        self, client: Client, broker_id: int, options: GroupOptions, view: ClusterView, trust: Trust
    ) -> None:
        """Prepare; run() competes.

        Args:
            client: started; its session owns /consumers/coordinator after a victory.
            broker_id: the candidate.
            options: of the coordinator.
            view: tells when topics may have changed.
            trust: knows whose registrations count.
        """
        self._candidate: Candidate[CoordinatorEpoch, Term] = Candidate(
            client,
            broker_id,
            COORDINATOR_OFFICE,
            trust,
            lambda mandate: Term(client, mandate, options, view),
        )
        #: Compete until stop(), or until the session is over.
        self.run = self._candidate.run
        self.stop = self._candidate.stop

    @property
    def coordinator_id(self) -> int | None:
        """The broker that is the coordinator, as far as this one knows."""
        return self._candidate.holder_id

    @property
    def active(self) -> bool:
        """Whether this candidate is the coordinator."""
        return self._candidate.term is not None

    @property
    def coordinator_epoch(self) -> CoordinatorEpoch | None:
        """Epoch of the running term; None where this candidate is not the coordinator."""
        mandate = self._candidate.mandate
        return None if mandate is None else mandate.epoch

    def status(self) -> GroupStatus | None:
        """Say what the running term holds; None where this candidate is not the coordinator."""
        term = self._candidate.term
        return None if term is None else term.status()

    async def term(self) -> Term:
        """Return the running term, once its groups are loaded.

        Raises:
            NotCoordinatorError: this broker is not the coordinator.
        """
        term = self._candidate.term
        if term is None:
            raise NotCoordinatorError
        await term.ready()
        return term
