"""What a broker in this process has at present."""

from __future__ import annotations

from broker.lifecycle.broker import Broker
from broker.lifecycle.session import BrokerSession
from quorum.client import Client
from quorum.metadata.numbers import BrokerGeneration


def session_of(broker: Broker) -> BrokerSession:
    """Return its session with the quorum."""
    assert broker.state.session is not None
    return broker.state.session


def generation_of(broker: Broker) -> BrokerGeneration | None:
    """Return the generation of its registration; None while there is none."""
    return None if broker.state.registration is None else broker.state.registration.generation


def thief_of(broker: Broker, hosts: str) -> Client:
    """Return a client that takes its session over, and ends it when it closes."""
    return Client(hosts, resume=session_of(broker).client.session_token)
