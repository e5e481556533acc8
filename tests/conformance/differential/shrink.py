"""Makes a stream that differs as small as it can, and writes it so that a person can read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from tests.conformance.differential.campaign import Arena, Verdict
from tests.conformance.differential.steps import Pending, Reconnect, Send, Step, show_step
from tests.conformance.differential.wire import Op, Request

RUNS_MAX: Final = 400


async def shrink(arena: Arena, verdict: Verdict) -> Verdict:
    """Return the verdict on the smallest stream that was found to differ as well, on fresh roots.

    Whole ranges of steps are left out first, then single ones, then single requests, until nothing more can
    go or RUNS_MAX streams were run. What counts is that a difference is left, not that it is the same one.
    """
    best = verdict
    runs = 0

    async def differs(steps: tuple[Step, ...]) -> bool:
        nonlocal best, runs
        runs += 1
        if runs > RUNS_MAX:
            return False
        tried = await arena.run(replace(best.stream, steps=steps), dense=verdict.dense)
        if tried.difference is None:
            return False
        best = tried
        return True

    assert verdict.difference is not None
    await differs(verdict.stream.steps[: verdict.difference.step + 1])
    size = len(best.stream.steps)
    while size:
        await _without_ranges(lambda: best.stream.steps, size, differs)
        size //= 2
    found = True
    while found and runs <= RUNS_MAX:
        found = False
        for smaller in _smaller(best.stream.steps):
            if await differs(smaller):
                found = True
                break
    return best


async def _without_ranges(
    steps_now: Callable[[], tuple[Step, ...]],
    size: int,
    differs: Callable[[tuple[Step, ...]], Awaitable[bool]],
) -> None:
    """Leave out every range of a size that can go, the last one first."""
    end = len(steps_now())
    while end > 0:
        steps = steps_now()
        start = max(0, end - size)
        shorter = steps[:start] + steps[end:]
        if shorter and len(shorter) < len(steps):
            await differs(shorter)
        end = start


def _smaller(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Every list of steps that lacks one step, one request, or one part of a multi."""
    for index, step in enumerate(steps):
        before, after = steps[:index], steps[index + 1 :]
        if before or after:
            yield before + after
        for smaller in _smaller_steps(step):
            yield (*before, smaller, *after)


def _smaller_steps(step: Step) -> Iterator[Step]:
    match step:
        case Send(_, requests) if len(requests) > 1 or requests[0].op in (Op.MULTI, Op.MULTI_READ):
            yield from (replace(step, requests=fewer) for fewer in _fewer(requests, 1))
        case Reconnect(_, _, behind):
            yield from (replace(step, behind=fewer) for fewer in _fewer(behind, 0))
        case Pending(_, _, _, requests):
            yield from (replace(step, requests=fewer) for fewer in _fewer(requests, 0))


def _fewer(requests: tuple[Request, ...], least: int) -> Iterator[tuple[Request, ...]]:
    for index, request in enumerate(requests):
        if len(requests) > least:
            yield requests[:index] + requests[index + 1 :]
        if request.op in (Op.MULTI, Op.MULTI_READ) and request.raw is None:
            for parts in _fewer(request.args[0], 0):
                yield (*requests[:index], Request(request.op, (parts,)), *requests[index + 1 :])


def tell(verdict: Verdict) -> str:
    """Write a stream with its difference, step by step."""
    difference = verdict.difference
    assert difference is not None
    stream = verdict.stream
    homes = ", ".join(f"session {number} at node {node}" for number, node in enumerate(stream.homes))
    lines = [f"  (~ is the stream's root; node 0 leads; {homes})"]
    for index, step in enumerate(stream.steps):
        mark = ">" if index == difference.step else " "
        lines.append(f"{mark} {index:2}  {show_step(step)}")
    if difference.step == len(stream.steps):
        lines.append(">     every event arrives, every session closes")
    lines += [f"        both: {_show(note)}" for note in difference.agreed]
    lines += [f"   ZooKeeper: {_show(difference.theirs)}", f"     Quorate: {_show(difference.ours)}"]
    return "\n".join(lines)


def _show(note: Any) -> str:
    return "nothing more" if note is None else f"session {note[0]} " + " ".join(map(str, note[1:]))
