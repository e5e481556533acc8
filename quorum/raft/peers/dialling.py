"""Opens a connection to a member's address: the look-up of its name, then a connection, each in its own time.
By TLS the member shows a certificate for the name that is looked up.

A look-up may ask several servers of names, each for seconds; a connection that takes so long is none. Knows
no members and no hello. No state.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from quorum.platform.tls import MakeContext
from quorum.raft.peers.peers import TransportOptions, split_address


async def dial(
    address: str,
    factory: Callable[[], asyncio.BaseProtocol],
    options: TransportOptions,
    make_context: MakeContext | None = None,
) -> None:
    """Connect to the first that answers of the addresses that a name has.

    Args:
        address: host:port.
        factory: makes the protocol, perhaps for several attempts; the last one counts.
        options: the times.
        make_context: of TLS; None: plain.
    """
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    try:
        async with asyncio.timeout(options.lookup_timeout_ms / 1000):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise TimeoutError(f"the name is not known after {options.lookup_timeout_ms} ms") from error
    try:
        async with asyncio.timeout(options.connect_timeout_ms / 1000):
            for number, (*_, place) in enumerate(found, 1):
                try:
                    if make_context is None:
                        await loop.create_connection(factory, str(place[0]), port)
                    else:
                        await loop.create_connection(
                            factory, str(place[0]), port, ssl=make_context(), server_hostname=host
                        )
                except OSError:
                    if number == len(found):
                        raise
                else:
                    return
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {options.connect_timeout_ms} ms") from error
