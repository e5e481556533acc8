"""What one broker has at present: parts, a session, an error that ends it; and whether it serves clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.config.broker import BrokerConfig
from broker.lifecycle.listening import AnnouncedView
from broker.lifecycle.parts import BrokerParts
from broker.lifecycle.session import BrokerSession, Registration


@dataclass(slots=True)
class BrokerState:
    """The state of one broker; the broker alone changes it."""

    config: BrokerConfig
    view: AnnouncedView = field(default_factory=AnnouncedView)
    #: "" before the quorum has been asked.
    cluster_id: str = ""
    #: None before the data directory is open.
    parts: BrokerParts | None = None
    #: None before the first attempt; the last one, also when it is over.
    session: BrokerSession | None = None
    failure: BaseException | None = None
    is_stopping: bool = False

    @property
    def registration(self) -> Registration | None:
        """The present registration."""
        return None if self.session is None else self.session.registration

    def readiness(self) -> tuple[bool, str]:
        """Say whether clients are served, and why not."""
        if self.failure is not None:
            return False, f"the broker stops: {self.failure}"
        if self.is_stopping:
            return False, "the broker stops"
        if self.registration is None:
            return False, "the broker is not registered: it has no session with the quorum"
        if not self.view.received:
            return False, "the controller has not sent the state of the cluster yet"
        return True, "registered, and the state of the cluster is known"
