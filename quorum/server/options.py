"""The limits of the client port, as one frozen value; where they come from is the configuration's affair.

Every one bounds something that a client could otherwise grow without end.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

from quorum.config.sasl_users import SaslUsers
from quorum.server.audit import ClientAudit

_MIB: Final = 1024 * 1024

#: The words that are served unless the configuration says otherwise.
DEFAULT_WORDS: Final = ("srvr", "ruok", "mntr", "isro", "stat")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Limits of the client port.

    Attributes:
        frame_bytes_max: longest request, without its length. session_timeout_min_ms: shortest timeout that a
        session gets. session_timeout_max_ms: longest timeout that a session gets. handshake_timeout_ms: how
        long a connection may stay without a handshake, and a closing one without reading.
        connections_per_address_max: 0 for no limit. outstanding_requests_max: requests of a connection that
        may wait for their outcome, each entry "auth" of an access list as one more; reading pauses there.
        watches_per_connection_max: watches that a connection may have armed. outbound_bytes_max: replies and
        events that a connection may leave unread before it is closed. connections_max: of all clients, 0 for
        no limit. received_bytes_total_max, unread_bytes_total_max, watch_bytes_total_max: what all clients
        together may hold of requests that are not whole, of replies that nobody reads, and of watches; the
        connection with the most goes when it is more. contact_loss_ms_max: silence of the
        majority after which no client is answered, whatever its session timeout; twice the longest election
        timeout.
        pause_ms_min: more than this between two ticks is a pause of this process: busy loop, slow disk,
        SIGSTOP.
        read_only_mode: whether a node without a quorum serves reads to clients that allow it.
        four_letter_words: the words that are answered. node_id, client_port, secure_client_port (-1: none),
        tick_ms, data_dir: only shown. super_digest, super_user, x509_super_user: the super user as digest, by
        SASL and by certificate, "" for nobody. sasl_users: who proves a password by SASL; None: nobody can.
        required_schemes: a client must have proven itself by one of these; (): by none. audit: where writes
        and refusals are noted; None: nowhere.
        own_proof: what the node's own client proves in place of that; of this process, and never kept.
    """

    frame_bytes_max: int = 0xFFFFF
    session_timeout_min_ms: int = 4000
    session_timeout_max_ms: int = 40_000
    handshake_timeout_ms: int = 5000
    connections_per_address_max: int = 0
    outstanding_requests_max: int = 1000
    watches_per_connection_max: int = 100_000
    outbound_bytes_max: int = 64 * _MIB
    connections_max: int = 0
    received_bytes_total_max: int = 96 * _MIB
    unread_bytes_total_max: int = 96 * _MIB
    watch_bytes_total_max: int = 192 * _MIB
    contact_loss_ms_max: float = 1200.0
    pause_ms_min: float = 100.0
    four_letter_words: tuple[str, ...] = DEFAULT_WORDS
    super_digest: str = ""
    super_user: str = ""
    x509_super_user: str = ""
    sasl_users: SaslUsers | None = None
    required_schemes: tuple[str, ...] = ()
    audit: ClientAudit | None = None
    own_proof: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    read_only_mode: bool = False
    node_id: int = 0
    client_port: int = 0
    secure_client_port: int = -1
    tick_ms: int = 2000
    data_dir: str = ""
