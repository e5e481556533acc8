"""The trust of brokers that exist in the quorum only."""

from __future__ import annotations

from quorum.metadata.trust import Trust

TRUST = Trust(["what the brokers of the tests share"], "cluster")
