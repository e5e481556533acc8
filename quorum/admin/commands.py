"""The paths of ZooKeeper's AdminServer, for monitors that ask them: /commands and /commands/NAME.

Decides nothing about the answers, which are the node's. As ZooKeeper does, an answer names its command and
has an error, null if there is none. No state.

Source: ZooKeeper 3.9 administrator's guide, "The AdminServer".
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from quorum.admin.endpoint import STRING, fields, list_of, nullable
from quorum.admin.parameters import Parameter, read_query
from quorum.admin.state import STATE
from quorum.admin.view import error_answer, json_answer, part

NAME: Final = Parameter("name", str, "of a command, as listed", pattern="[a-z_]{1,40}")
LIST: Final = fields(commands=list_of(STRING))
ANSWER: Final = fields(command=STRING, error=nullable("string"))


async def get_commands(request: web.Request) -> web.Response:
    """List the commands."""
    read_query(request, ())
    return json_answer({"commands": part(request, STATE).command_names()})


async def get_command(request: web.Request) -> web.Response:
    """Answer a command."""
    read_query(request, ())
    name = str(NAME.read(request.match_info["name"]))
    state = part(request, STATE)
    answer = await state.command(name)
    if answer is None:
        return error_answer(404, f"Unknown command: {name}", "GET /commands lists them", command=name)
    return json_answer(answer)
