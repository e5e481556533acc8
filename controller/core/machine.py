"""The controller as a pure machine: inputs go in, effects come out.

One machine is one term of office. Events only mark what is due; the machine then runs one pass after the
other (passes.py). A pass is a generator: where it reads or writes, the machine emits the effects and resumes
it with the inputs that answer them. So the same inputs at the same times give the same effects, whoever
carries them out: the shell in `controller.runtime`, or a simulation.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from typing import Final

from controller.core import inputs
from controller.core.agenda import Agenda, Duty
from controller.core.cache import Cache
from controller.core.channels import Channels
from controller.core.creating import TopicAdmin
from controller.core.deciding import Decider
from controller.core.deleting import Deletions
from controller.core.dirty import Concern
from controller.core.draws import Draws
from controller.core.effects import Answer, Effect, GiveWay, Resign
from controller.core.electing import Elections
from controller.core.io import DeclinedError, Io, Steps, TermOverError, UnsureError
from controller.core.membership import Membership
from controller.core.model import ClusterModel
from controller.core.options import ControllerOptions, Counters
from controller.core.outcomes import Outcome, RequestFailed
from controller.core.passes import WATCHED, Passes, TermParts
from controller.core.reading import CheckSigned
from controller.core.reassigning import Reassignments
from controller.core.writing import StateWriter
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.topic_settings import TopicSettings

#: Requests of clients that wait for their turn.
COMMANDS_MAX: Final = 1_000
_TOPICS: Final = f"{paths.BROKER_TOPICS}/"


class ControllerMachine:
    """One term of office."""

    def __init__(
        self,
        elected: inputs.Elected,
        *,
        options: ControllerOptions,
        default_settings: TopicSettings,
        counters: Counters,
        check_signed: CheckSigned,
    ) -> None:
        """Take office; step() with the same Elected begins to work.

        Args:
            elected: whose term it is.
            options: of the controller.
            default_settings: defaults of topics.
            counters: rise with what happens.
            check_signed: raises MetadataDecodeError for a registration without the proof of the peer secret.
        """
        by_queue = options.channel == "queue"
        model = ClusterModel()
        io = Io(self._emit, controller_epoch=elected.controller_epoch, epoch_version=elected.epoch_version)
        channels = Channels(model, counters, self._emit, by_queue=by_queue)
        draws = Draws(elected.seed)
        cache = Cache(io, model, channels, draws)
        decider = Decider(
            io,
            model,
            cache,
            StateWriter(io),
            controller_epoch=elected.controller_epoch,
            default_settings=default_settings,
            counters=counters,
        )
        membership = Membership(io, model, decider, channels, counters, check_signed, by_queue=by_queue)
        self.parts = TermParts(
            io=io,
            model=model,
            channels=channels,
            cache=cache,
            decider=decider,
            membership=membership,
            deletions=Deletions(io, model, cache, channels),
            reassignments=Reassignments(io, model, decider, channels),
            elections=Elections(io, model, decider, counters),
            topics=TopicAdmin(io, model, options, draws),
        )
        self._agenda = Agenda(
            isr_coalesce_ms=options.isr_coalesce_ms,
            balance_interval_ms=options.leader_imbalance_check_interval_ms,
        )
        self._passes = Passes(
            self.parts,
            self._agenda,
            self._answer,
            imbalance_percentage=options.leader_imbalance_per_broker_percentage,
        )
        self._effects: list[Effect] = []
        self._pass: Steps[bool] | None = None
        #: What the pass waits for; empty: the next Continued.
        self._awaited: tuple[int, ...] = ()
        #: Why the term ends once the pass under way has ended.
        self._ending: Resign | None = None
        #: Whether nothing of this term acts any more.
        self.is_over = False

    # -- what others may know ------------------------------------------------------------------------------

    @property
    def model(self) -> ClusterModel:
        """The cluster as this term knows it."""
        return self.parts.model

    @property
    def step_under_way(self) -> Duty | None:
        """The step of the pass that runs; None between passes."""
        return self._passes.under_way

    @property
    def wake_ms(self) -> int | None:
        """When it wants a Tick; None: not before another input."""
        times = [self.parts.channels.wake_ms, None if self._pass is not None else self._agenda.wake_ms]
        return min((each for each in times if each is not None), default=None)

    # -- inputs --------------------------------------------------------------------------------------------

    def step(self, event: inputs.Input, now_ms: int) -> list[Effect]:
        """Take one input and return what is to be done about it, in order; nothing once the term is over.

        Args:
            event: what happened.
            now_ms: monotonic.
        """
        if self.is_over:
            return []
        self._take(event, now_ms)
        if self._pass is not None and isinstance(event, inputs.PathsChanged):
            # What the pass writes causes events, too.
            return []
        self._advance(now_ms, is_continued=isinstance(event, inputs.Continued))
        ending = self._ending
        if ending is not None and self._pass is None:
            self._leave(ending)
        elif not isinstance(event, inputs.Continued) or self._pass is None:
            # In the middle of a long piece of work more is to come: then requests are larger.
            self.parts.channels.flush(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _take(self, event: inputs.Input, now_ms: int) -> None:
        match event:
            case inputs.PathsChanged(changed):
                for path in changed:
                    self._note(path, now_ms)
            case inputs.NodesRead() | inputs.ChildrenRead() | inputs.ReadFailed() | inputs.MultiDone():
                self.parts.io.take(event)
            case inputs.Continued() | inputs.Tick():
                pass
            case inputs.Answered():
                self._ending = self._ending or self.parts.channels.answered(event, now_ms)
                self._note_progress()
            case inputs.NoAnswer():
                self.parts.channels.no_answer(event, now_ms)
            case inputs.Requested():
                self._queue(event)
            case inputs.Withdrawn(number):
                waiting = self._passes.requests
                for request in [each for each in waiting if each.id == number]:
                    waiting.remove(request)
            case inputs.Reconnected():
                # Watches do not say what happened in between.
                self.parts.cache.dirty.mark_everything()
                self._agenda.mark_all()
            case inputs.Elected():
                self._agenda.begin_term(now_ms)
            case inputs.Ended(reason, is_fenced):
                self._ending = self._ending or Resign(reason, is_fenced)
                if is_fenced:
                    self._drop_pass()

    def _note(self, path: str, now_ms: int) -> None:
        if path.startswith(_TOPICS) or path == paths.BROKER_TOPICS:
            match self.parts.cache.dirty.note(path):
                case Concern.TOPIC:
                    self._agenda.mark(Duty.CACHE)
                case Concern.STATE:
                    self._agenda.mark_later(now_ms)
                case Concern.NOTHING:
                    pass
            return
        for watched, row in WATCHED.items():
            if path == watched or (row.is_recursive and path.startswith(f"{watched}/")):
                self._agenda.mark(row.duty)

    def _note_progress(self) -> None:
        if self.model.deleting:
            self._agenda.mark(Duty.REMOVALS)
        if self.model.announced:
            self._agenda.mark(Duty.MOVES)

    def _queue(self, request: inputs.Requested) -> None:
        if self._ending is not None:
            self._answer(request.id, RequestFailed(ErrorCode.NOT_CONTROLLER, self._ending.reason))
        elif len(self._passes.requests) >= COMMANDS_MAX:
            problem = f"the controller's queue of requests: {COMMANDS_MAX} wait (try again later)"
            self._answer(request.id, RequestFailed(ErrorCode.REQUEST_TIMED_OUT, problem))
        else:
            self._passes.requests.append(request)
            self._agenda.mark(Duty.COMMANDS)

    # -- the pass under way --------------------------------------------------------------------------------

    def _advance(self, now_ms: int, *, is_continued: bool) -> None:
        """Begin a pass if it is time, and run it as far as it goes."""
        if self._pass is not None and not self._awaited and not is_continued:
            return
        while not self.parts.io.is_open(self._awaited):
            if self._pass is None:
                if self._ending is not None or not self._agenda.is_time(now_ms):
                    return
                self._agenda.begin_pass()
                self._pass = self._passes.run()
            if self._resume(self._pass, now_ms):
                self._emit(GiveWay())
                return

    def _resume(self, work: Steps[bool], now_ms: int) -> bool:
        """Run the pass up to where it waits, and say whether it only lets others have their turn."""
        try:
            self._awaited = next(work)
        except StopIteration as end:
            is_dirty = bool(self.parts.cache.dirty)
            self._agenda.end_pass(now_ms, is_settled=bool(end.value), is_dirty=is_dirty)
        except UnsureError as error:
            self.parts.io.info(f"the controller reads everything again: {error}")
            self.parts.cache.dirty.mark_everything()
            self._agenda.break_off(now_ms)
        except TermOverError as error:
            self._ending = Resign(str(error), error.is_fenced)
        except DeclinedError as error:
            self._ending = self._ending or Resign(str(error), is_broken=True)
        else:
            return not self._awaited
        self._drop_pass()
        return False

    def _drop_pass(self) -> None:
        if self._pass is not None:
            self._pass.close()
        self._pass, self._awaited = None, ()
        self._passes.under_way = None

    def _leave(self, resign: Resign) -> None:
        """Nothing of this term acts any more."""
        self.is_over = True
        for request in self._passes.requests:
            self._answer(request.id, RequestFailed(ErrorCode.NOT_CONTROLLER, resign.reason))
        self._passes.requests.clear()
        self.parts.channels.close_all()
        self._emit(resign)

    def _answer(self, number: int, outcome: Outcome) -> None:
        self._emit(Answer(number, outcome))

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)
