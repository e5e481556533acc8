"""Endpoints of an import: how it stands, its steps, and what the target holds, for `quorate import`.

Decides what a well-formed step is and how a refusal is worded; what a step does, quorum.core.importing says.
Access lists do not count, and steps write users and access lists, too: it is an admin who asks. No state.

Source: docs/operate/migrate.md; docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgpack
from aiohttp import web

from quorum.admin.endpoint import Answer, Endpoints, answer
from quorum.admin.reading import Says
from quorum.admin.state import MACHINE
from quorum.admin.view import BadInputError
from quorum.config.admin_port import AdminRole
from quorum.core.codes import BAD_VERSION, NODE_EXISTS, NOT_EMPTY, OK, RUNTIME_INCONSISTENCY
from quorum.core.importing import BEGIN, SOURCE_CHARS_MAX, ZXID_MAX, walk
from quorum.core.machine import StateMachine
from quorum.core.results import Result
from quorum.errors import ImportRefusedError, QuorateError, StaleStepError, describe_code

#: of a step; base64 makes a third more of its changes
BODY_BYTES_MAX: Final = 12 * 1024 * 1024
#: znodes that are looked at between two turns of the loop
ROWS_PER_TURN: Final = 500
ENDPOINTS: Final = Endpoints()
#: takes a step, and what gets its result
IMPORT: Final = web.AppKey[Callable[[list[Any]], Awaitable[Result]]]("import")
_EXAMPLE: Final = 'send {"step": "begin", "source": "zk1:2181", "floor": 0}'


class ImportStep(Enum):
    """What is done."""

    BEGIN = "begin"
    WRITE = "write"
    OPEN = "open"


class StepBody(NamedTuple):
    """One step of an import."""

    step: ImportStep
    source: Annotated[str, Says("the cluster that is imported", 1, SOURCE_CHARS_MAX, "[ -~]+")]
    floor: Annotated[int, Says("above it lies the step's own zxid; rises from step to step", 0, ZXID_MAX)] = 0
    #: a msgpack list, as quorum.core.importing has it
    changes: bytes | None = None


ImportNow: TypeAlias = Annotated[Answer, answer(source=str | None, zxid=int, znodes=int)]
#: `floor` is that of the last step; the next one names a higher one
StepDone: TypeAlias = Annotated[Answer, answer(zxid=int, floor=int)]


@ENDPOINTS.add("GET", "/v1/import")
async def _get_import(request: web.Request) -> ImportNow:
    """The import that is under way."""
    machine = request.app[MACHINE]()
    source = machine.transaction.import_source
    return {"source": source or None, "zxid": machine.zxid, "znodes": machine.tree.node_count}


@ENDPOINTS.add("POST", "/v1/import", role=AdminRole.ADMIN, example=_EXAMPLE, bytes_max=BODY_BYTES_MAX)
async def _post_import(request: web.Request, body: StepBody) -> StepDone:
    """Begin an import, write some of it, or open the cluster to clients."""
    kind, changes = body.step.value, None
    if body.changes is not None:
        try:
            changes = msgpack.unpackb(body.changes, raw=False)
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise BadInputError(f"changes are not msgpack: {error}", _EXAMPLE, "changes") from error
    result = await request.app[IMPORT]([kind, body.source, body.floor, changes])
    if result.err != OK:
        raise _refusal(kind, result)
    return {"zxid": result.zxid, "floor": result.value}


def _refusal(kind: str, result: Result) -> QuorateError:
    """Say why a step was refused."""
    about = str(result.value or "")
    if result.err == NODE_EXISTS and about[:1] != "/":
        problem = f"an import of {about} is under way"
        return ImportRefusedError(problem, "import from there, or found the cluster again for another source")
    if result.err == NOT_EMPTY and kind == BEGIN:
        problem = f"the target is not empty: it has {about}"
        remedy = "import into a new cluster, whose brokers start after the cutover, or delete what is there"
        return ImportRefusedError(problem, remedy)
    if result.err == BAD_VERSION:
        return ImportRefusedError("no import is under way", "begin with `quorate import` without --cutover")
    if result.err == RUNTIME_INCONSISTENCY:
        problem = "a later step of this import was carried out before"
        return StaleStepError(problem, "let one `quorate import` run at a time, and run it again")
    code = describe_code(result.err).name
    what = f"a step of the import was refused with {code}" + (f" at {about}" if about else "")
    return ImportRefusedError(what, "run `quorate import` again; report it if that does not help")


@ENDPOINTS.add("GET", "/v1/import/znodes", content=("application/x-ndjson",), role=AdminRole.OPERATOR)
async def _get_znodes(request: web.Request) -> web.StreamResponse:
    """Every znode that an import could have set, with a digest of what it keeps; then how many they are."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    if request.method != "HEAD":
        machine = request.app[MACHINE]()
        rows, count = _rows(machine), 0
        while lines := list(islice(rows, ROWS_PER_TURN)):
            count += len(lines)
            await response.write(b"".join(lines))
            await asyncio.sleep(0)
        last = {"znodes": count, "zxid": machine.zxid}
        await response.write(json.dumps(last).encode() + b"\n")
    return response


def _rows(machine: StateMachine) -> Iterator[bytes]:
    """Yield a line per znode: [path, digest]."""
    for node in walk(machine.tree):
        yield json.dumps([node.path, node.digest().hex()]).encode() + b"\n"
