"""What a replica tells operators who asked through it when a snapshot replaces its state."""

from __future__ import annotations

import pytest

from quorum.errors import OutcomeUnknownError, QuorateError
from quorum.raft.requests.requests import Action, ChangeReply, ChangeRequest, LeaderRequest, Outcome
from tests.unit.digests.test_digest_wiring import TERM, Bench


@pytest.mark.parametrize(("term", "done"), [(TERM, True), (TERM + 1, False)])
def test_what_an_installed_state_covers_is_told_by_its_own_term(term: int, done: bool) -> None:
    bench = Bench(2)
    told: list[int | QuorateError] = []
    bench.replica.administration.submit(LeaderRequest(Action.REMOVE, 3), told.append, 0.0)
    (request,) = [message for message in bench.engine.sent if isinstance(message, ChangeRequest)]
    reply = ChangeReply(TERM, 1, 2, request.request_id, Outcome.ACCEPTED, 5, TERM, "", "")
    bench.replica.administration.receive(reply)
    assert told == []
    installed = Bench(3)
    for _ in range(9):
        installed.apply(term)
    bench.engine.applied_index = 9
    bench.replica.install(installed.replica.machine)
    (outcome,) = told
    if done:
        assert outcome == 5
    else:
        assert isinstance(outcome, OutcomeUnknownError)
