"""Sockets that a node listens on.

Decides how an address becomes a bound socket and which error a person sees when it cannot. A socket that
somebody bound before (a local ensemble reserves its ports so) is taken as it is. Knows no protocol and no
event loop. Soft state only.
"""

from __future__ import annotations

import errno
import socket

from quorum.errors import AddressInUseError, ConfigError

#: Where to listen: host and port (0: any free one), or a socket that is bound already.
Listen = tuple[str, int] | socket.socket


def bind(field: str, listen: Listen) -> socket.socket:
    """Return a bound, non-blocking TCP socket; the caller owns it.

    Args:
        field: the setting that the address comes from, for messages.
        listen: an address, or a bound socket that is returned.
    """
    if isinstance(listen, socket.socket):
        listen.setblocking(False)
        return listen
    host, port = listen
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        remedy = "name an address of this machine"
        raise ConfigError(field, f"{host}:{port}", f"the host is unknown ({error})", remedy) from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            problem = f"{field} = {host}:{port}: another process listens there"
            raise AddressInUseError(problem, "stop that process or choose another port") from error
        remedy = "name an address and a port that this machine lets the node use"
        raise ConfigError(field, f"{host}:{port}", f"cannot be bound ({error})", remedy) from error
    return bound
