"""How a pass reads and writes: generators that emit effects and wait for the inputs that answer them.

A step of a pass is a generator of `Steps`: it yields the ids that it waits for, or REST where others may have
their turn; `ControllerMachine` resumes it. Every write is fenced here, once. What nobody knows the outcome of
breaks the pass off (UnsureError), what the fence meets ends the term (TermOverError).
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from controller.core import effects, fences, inputs
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import ControllerEpoch

T = TypeVar("T")

Steps = Generator[tuple[int, ...], None, T]
#: Yielded where others may have their turn.
REST: Final[tuple[int, ...]] = ()
#: Items of a list between two rests.
AT_ONCE_MAX: Final = 100

Found = inputs.Znode | inputs.Unreadable | None
Reply = inputs.NodesRead | inputs.ChildrenRead | inputs.ReadFailed | inputs.MultiDone


class UnsureError(Exception):
    """Nobody knows what the nodes hold now: everything is read again."""


class TermOverError(Exception):
    """The term ends; `is_fenced`: another controller has been elected."""

    def __init__(self, reason: str, *, is_fenced: bool = False) -> None:
        super().__init__(reason)
        self.is_fenced = is_fenced


class DeclinedError(Exception):
    """The quorum does not take a write, or a node cannot be read; nothing was written.

    Attributes:
        problem: in words, without what helps.
        error_code: Kafka's.
    """

    def __init__(self, problem: str, error_code: ErrorCode, remedy: str = "") -> None:
        super().__init__(f"{problem} ({remedy})" if remedy else problem)
        self.problem = problem
        self.error_code = error_code


class Io:
    """The reads and writes of one term."""

    def __init__(
        self, emit: Callable[[effects.Effect], None], *, controller_epoch: ControllerEpoch, epoch_version: int
    ) -> None:
        """Write in the name of a controller epoch, as long as /controller_epoch has the version."""
        self._emit = emit
        self.controller_epoch = controller_epoch
        self._epoch_version = epoch_version
        self._last_id = 0
        self._open: set[int] = set()
        self._replies: dict[int, Reply] = {}

    def take(self, reply: Reply) -> None:
        """Take an answer."""
        if reply.id not in self._open:
            raise ValueError(f"an answer to what was never asked for: {reply}")
        self._open.discard(reply.id)
        self._replies[reply.id] = reply

    def is_open(self, ids: Iterable[int]) -> bool:
        """Say whether one of these is still to be answered."""
        return not self._open.isdisjoint(ids)

    def info(self, text: str) -> None:
        """Log a line."""
        self._emit(effects.Trace(effects.Level.INFO, text))

    def warn(self, text: str) -> None:
        """Log a warning."""
        self._emit(effects.Trace(effects.Level.WARNING, text))

    # -- reads ---------------------------------------------------------------------------------------------

    def read(self, paths: Sequence[str]) -> Steps[Sequence[Found]]:
        """Read nodes, in the order of their paths; None for one that does not exist."""
        if not paths:
            return ()
        number = self._number()
        self._emit(effects.ReadNodes(number, tuple(paths)))
        yield (number,)
        reply = self._replies.pop(number)
        if isinstance(reply, inputs.NodesRead):
            return reply.nodes
        raise UnsureError(_problem_of(reply))

    def read_one(self, path: str) -> Steps[inputs.Znode | None]:
        """Read a node; raises DeclinedError where it cannot be read."""
        (found,) = yield from self.read((path,))
        if isinstance(found, inputs.Unreadable):
            raise DeclinedError(found.problem, ErrorCode.UNKNOWN_SERVER_ERROR)
        return found

    def read_children(self, path: str, *, must_exist: bool = False) -> Steps[Sequence[str]]:
        """Read the names below a node, sorted; none if it does not exist."""
        number = self._number()
        self._emit(effects.ReadChildren(number, path))
        yield (number,)
        reply = self._replies.pop(number)
        if isinstance(reply, inputs.ChildrenRead):
            if reply.names is None and must_exist:
                raise UnsureError(f"{path} does not exist")
            return reply.names or ()
        raise UnsureError(_problem_of(reply))

    # -- writes --------------------------------------------------------------------------------------------

    def begin_write(self, operations: Sequence[effects.Operation]) -> int:
        """Send a write behind the fence, and return its id for `outcomes`."""
        number = self._number()
        fence = fences.controller_epoch(self._epoch_version)
        self._emit(effects.Write(number, (fence, *operations)))
        return number

    def outcomes(self, ids: Sequence[int]) -> Steps[list[inputs.Done | inputs.Rejected | inputs.Unknown]]:
        """Wait for writes; an index of a failed operation counts without the fence."""
        if ids:
            yield tuple(ids)
        found: list[inputs.Done | inputs.Rejected | inputs.Unknown] = []
        is_fenced = False
        for number in ids:
            reply = self._replies.pop(number)
            assert isinstance(reply, inputs.MultiDone)
            outcome = reply.outcome
            if isinstance(outcome, inputs.Rejected) and outcome.failed_index >= 0:
                is_fenced = is_fenced or outcome.failed_index == 0
                outcome = outcome._replace(failed_index=outcome.failed_index - 1)
            found.append(outcome)
        if is_fenced:
            raise TermOverError(
                f"controller epoch {self.controller_epoch} is over: /controller_epoch has changed",
                is_fenced=True,
            )
        return found

    def write_all(self, writes: Sequence[Sequence[effects.Operation]]) -> Steps[list[inputs.Rejected | None]]:
        """Send writes one behind the other and wait for all; None for one that was committed."""
        outcomes = yield from self.outcomes([self.begin_write(each) for each in writes])
        results: list[inputs.Rejected | None] = []
        for outcome in outcomes:
            if isinstance(outcome, inputs.Unknown):
                raise UnsureError(outcome.problem)
            results.append(outcome if isinstance(outcome, inputs.Rejected) else None)
        return results

    def write(self, *operations: effects.Operation) -> Steps[inputs.Rejected | None]:
        """Send one write and wait for it; otherwise as write_all."""
        (outcome,) = yield from self.write_all([operations])
        return outcome

    def _number(self) -> int:
        self._last_id += 1
        self._open.add(self._last_id)
        return self._last_id


def declined(rejected: inputs.Rejected) -> DeclinedError:
    """Return the error of a write that the quorum does not take."""
    return DeclinedError(rejected.problem, rejected.error_code, rejected.remedy)


def parts_of(items: Sequence[T], size: int = AT_ONCE_MAX) -> Iterator[list[T]]:
    """Cut a list into parts, between which others may have their turn."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def rest(part: Sequence[object], size: int = AT_ONCE_MAX) -> Steps[None]:
    """Let others have their turn after a part that was full."""
    if len(part) >= size:
        yield REST


def _problem_of(reply: Reply) -> str:
    return reply.problem if isinstance(reply, inputs.ReadFailed) else f"an answer of another kind: {reply}"
