"""A controller's machine whose steps are recorded; tests/support/replaying.py plays them again."""

from __future__ import annotations

from controller.core.effects import Effect
from controller.core.inputs import Elected, Input
from controller.core.machine import ControllerMachine
from controller.core.options import ControllerOptions, Counters
from controller.core.reading import CheckSigned
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform.recording import Recordings


class RecordedControllerMachine(ControllerMachine):
    """One term of office, with its recording."""

    def __init__(
        self,
        recordings: Recordings,
        elected: Elected,
        *,
        options: ControllerOptions,
        default_settings: TopicSettings,
        counters: Counters,
        check_signed: CheckSigned,
    ) -> None:
        """Begin a file for this term; its first step has what the machine is made of."""
        self._recorder = recordings.begin(f"controller-{elected.controller_epoch}")
        self._recorder.note(0, (elected, options, default_settings))

        def check(path: str, data: bytes | None, owner: int) -> None:
            try:
                check_signed(path, data, owner)
            except MetadataDecodeError as error:
                self._recorder.note(0, ("unsigned", path, data, owner), error.message)
                raise

        super().__init__(
            elected,
            options=options,
            default_settings=default_settings,
            counters=counters,
            check_signed=check,
        )

    def step(self, event: Input, now_ms: int) -> list[Effect]:
        """Step and record it."""
        effects = None
        try:
            effects = super().step(event, now_ms)
        finally:
            # Also one that raises: a report is about that.
            self._recorder.note(now_ms, event, effects)
        return effects
