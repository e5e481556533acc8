"""Reads of many nodes: what is too large together is asked for in halves, and what is too large alone by
itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quorum.client import NoAuthError, NoNodeError, RequestTooLargeError, ServerError, SessionExpiredError
from quorum.client.bulk import NODES_MAX, read_all
from quorum.client.errors import server_error
from quorum.client.requests import PreparedRequest
from quorum.client.session import ClientSession
from quorum.errors import CODE_NUMBERS
from quorum.wire import replies
from quorum.wire.lookups import decode_multi_read
from quorum.wire.protocol import OpCode
from quorum.wire.requests import decode_read

STAT_BYTES = bytes(range(68))
ANSWER_BYTES_MAX = 100
REQUEST_BYTES_MAX = 3_000
CLOSED = -102


class Server:
    """Nodes of given sizes; an answer for many, and a request, have small bounds."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        #: How many nodes each request for several asked for; 0: a request for one.
        self.asked: list[int] = []

    async def call(self, request: PreparedRequest[Any]) -> Any:
        frame = request.encode(1)
        op = int.from_bytes(frame[8:12], "big", signed=True)
        if op == OpCode.GET_DATA:
            return request.decode(*self._get(decode_read(frame, 12, len(frame))[0]))
        if len(frame) > REQUEST_BYTES_MAX:
            raise RequestTooLargeError(request.label, len(frame), REQUEST_BYTES_MAX)
        reads = decode_multi_read(frame, 12, len(frame))
        assert reads is not None
        self.asked.append(len(reads))
        if sum(self.sizes.get(path, 0) for _, path in reads) > ANSWER_BYTES_MAX:
            raise server_error(CODE_NUMBERS["QUOTAEXCEEDED"], "")
        answers = [
            replies.encode_read_answer(
                op, (bytes(self.sizes[path]), STAT_BYTES) if path in self.sizes else NoNodeError.code or 0
            )
            for op, path in reads
        ]
        return request.decode(0, memoryview(replies.encode_multi_read(1, 2, answers))[4:])

    def _get(self, path: str) -> tuple[int, memoryview]:
        self.asked.append(0)
        if path.endswith("closed"):
            return CLOSED, memoryview(b"")
        return 0, memoryview(replies.encode_data(1, 2, bytes(self.sizes[path]), STAT_BYTES))[4:]


async def read(server: Server, paths: list[str]) -> list[Any]:
    return await read_all(cast("ClientSession", server), paths)


def sizes_of(found: list[Any]) -> list[int | None]:
    return [len(each[0]) if isinstance(each, tuple) else None for each in found]


async def test_a_list_that_is_too_large_is_halved_until_it_fits() -> None:
    server = Server({"/a": 60, "/b": 60, "/d": 40, "/e": 10})
    found = await read(server, ["/a", "/b", "/none", "/d", "/e"])
    assert sizes_of(found) == [60, 60, None, 40, 10]
    assert isinstance(found[2], NoNodeError)
    assert server.asked == [5, 2, 1, 1, 3]


async def test_a_node_that_is_too_large_for_a_list_is_read_by_itself() -> None:
    server = Server({"/a": 5_000, "/b": 1, "/closed": 5_000})
    found = await read(server, ["/a", "/b", "/closed"])
    assert sizes_of(found) == [5_000, 1, None]
    assert isinstance(found[2], NoAuthError)
    assert server.asked.count(0) == 2


async def test_many_nodes_and_long_paths_take_several_requests() -> None:
    names = [f"/{number}" for number in range(2 * NODES_MAX + 1)]
    server = Server(dict.fromkeys(names, 0))
    assert sizes_of(await read(server, names)) == [0] * len(names)
    assert sum(server.asked) == len(names)
    assert max(server.asked) * len("/1000") < REQUEST_BYTES_MAX
    assert await read(server, []) == []


async def test_any_other_refusal_ends_the_read() -> None:
    class Refusing(Server):
        async def call(self, request: PreparedRequest[Any]) -> Any:  # noqa: ARG002 - whatever is asked
            raise refusal

    for refusal in (server_error(-5, ""), SessionExpiredError()):
        with pytest.raises(ServerError) as caught:
            await read(Refusing({}), ["/a", "/b"])
        assert caught.value is refusal


async def test_a_path_that_no_request_can_carry_is_refused() -> None:
    with pytest.raises(RequestTooLargeError):
        await read(Server({}), ["/" + "x" * REQUEST_BYTES_MAX])
