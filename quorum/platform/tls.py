"""TLS on accepted and dialled connections: contexts made of bytes, handshakes that wait for each other.

A context lives as long as its connection, and nothing is resumed: who an authority, a date or a certificate
turns away is turned away at the next connection. Decides how many handshakes of one port are under way at
once, for a storm of clients must not keep the loop from its peers; and what is logged of one that fails.
Reads no files and knows no protocol. Soft state only.

Source: RFC 8446; RFC 5246; Python's `ssl`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from quorum.errors import QuorateError

log = logging.getLogger("quorate.tls")

#: makes the context of one connection
MakeContext = Callable[[], ssl.SSLContext]

#: makes the contexts of what a command dials; None: it dials without TLS
DIALLING: Final = ContextVar[MakeContext | None]("dialling", default=None)

#: for the first byte of a connection, and again for its handshake
HANDSHAKE_TIMEOUT_S: Final = 5.0
#: handshakes of one port whose turn it is at once; each costs the loop a millisecond or two
HANDSHAKES_MAX: Final = 16
#: how long a turn may last; who hangs then holds nobody up any more
TURN_S: Final = 0.25
#: failures of one port that come so soon after one that was logged are counted, not logged
QUIET_S: Final = 1.0
#: what TLS begins with: a record of the handshake
FIRST_BYTE: Final = b"\x16"
_MODES: Final = {"none": ssl.CERT_NONE, "want": ssl.CERT_OPTIONAL, "need": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class UnfitError(Exception):
    """What was read cannot be used.

    Attributes:
        part: "certificate", "key" or "authorities". problem: in words.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(problem)
        self.part = part
        self.problem = problem


class _Handshake(ssl.SSLObject):
    """A handshake that sends its alert when it fails: event loops close without it.

    Without an alert the other side sees a connection that ends, and Kafka's clients try again for ever.
    """

    outgoing: ssl.MemoryBIO
    accepted: socket.socket | None = None

    def do_handshake(self) -> None:
        """Go on; raises SSLError, after it has sent what is left to be said."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.accepted is not None:
                # An alert has a few bytes; who reads nothing misses it.
                with contextlib.suppress(OSError):
                    self.accepted.send(self.outgoing.read())
            raise


class AcceptingContext(ssl.SSLContext):
    """The context of one accepted connection."""

    sslobject_class = _Handshake
    #: where an alert is sent; None: nowhere
    accepted: socket.socket | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return a handshake that knows where its alert goes."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Handshake), "sslobject_class is"
        made.outgoing, made.accepted = outgoing, self.accepted
        return made


class TlsMaterial(NamedTuple):
    """What one end of TLS connections proves, and whom it believes.

    Attributes:
        certificate: PEM, the leaf first; b"": none. key: its private key, PEM without a password.
        authorities: PEM; "": nobody is believed.
    """

    certificate: bytes = b""
    key: bytes = b""
    authorities: str = ""
    client_auth: str = "need"
    minimum_version: str = "1.2"

    def check(self) -> None:
        """Raise UnfitError if no context can be made of it."""
        if self.certificate:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(
                    cadata=self.certificate.decode("ascii")
                )
            except (ssl.SSLError, ValueError) as error:
                raise UnfitError("certificate", f"holds no certificate in PEM ({_told(error)})") from error
            try:
                self._context(ssl.PROTOCOL_TLS_SERVER, proves=True, verifies=False)
            except (ssl.SSLError, ValueError) as error:
                if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                    raise UnfitError("key", "is not the key of the certificate") from error
                problem = f"holds no private key in PEM, without a password ({_told(error)})"
                raise UnfitError("key", problem) from error
        if self.authorities:
            try:
                self._context(ssl.PROTOCOL_TLS_CLIENT, proves=False, verifies=True)
            except (ssl.SSLError, ValueError) as error:
                raise UnfitError("authorities", f"holds no certificate in PEM ({_told(error)})") from error

    def accepting(self) -> ssl.SSLContext:
        """Return the context of one accepted connection."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER, proves=True, verifies=self.client_auth != "none")
        context.verify_mode = _MODES[self.client_auth]
        # There is no second connection of this context that could resume the first.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        return context

    def dialling(self) -> ssl.SSLContext:
        """Return the context of one dialled connection, which checks the name that was dialled."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT, proves=bool(self.certificate), verifies=True)

    def _context(self, protocol: int, *, proves: bool, verifies: bool) -> ssl.SSLContext:
        is_server = protocol == ssl.PROTOCOL_TLS_SERVER
        context = (AcceptingContext if is_server else ssl.SSLContext)(protocol)
        context.minimum_version = _VERSIONS[self.minimum_version]
        if proves:
            # OpenSSL takes a chain from a file alone: from one that has no name, in memory.
            memory = os.memfd_create("tls")
            try:
                with open(memory, "wb", closefd=False) as file:
                    file.write(self.certificate + b"\n" + self.key)
                context.load_cert_chain(f"/proc/self/fd/{memory}", password="")
            finally:
                os.close(memory)
        if verifies:
            context.load_verify_locations(cadata=self.authorities)
        return context


#: OpenSSL's codes of a certificate that nobody who is believed has signed
_UNTRUSTED: Final = frozenset((2, 18, 19, 20, 21, 27))


def _told(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error)


def remedy_for_tls(error: ssl.SSLError) -> str:
    """Return what somebody does whose connection to a port ended so."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNTRUSTED:
            return "name who signed its certificate with --ca FILE"
        return "give it a certificate that is good now and has the name that is dialled, or dial another name"
    # An alert of the other side: it looked at ours, or wants one.
    if any(word in (error.reason or "") for word in ("CERTIFICATE", "UNKNOWN_CA")):
        return "show a certificate that its authorities signed, with --cert FILE and --key FILE"
    return "check that this port speaks TLS"


def not_after_s(certificate: bytes) -> float | None:
    """Return when the first certificate that does expires, in seconds since 1970; None: no certificate.

    Args:
        certificate: PEM, one or more, sound.
    """
    text = certificate.decode("ascii", "replace")
    found = []
    for part in text.split(_BEGIN)[1:]:
        der = ssl.PEM_cert_to_DER_cert(_BEGIN + part.partition(_END)[0] + _END)
        # Certificate, TBSCertificate: [version], serial, algorithm, issuer, validity: not before, not after.
        fields = _items(_items(_items(der)[0][1])[0][1])
        validity = fields[4 if fields[0][0] == 0xA0 else 3][1]
        tag, when = _items(validity)[1]
        digits = when.decode("ascii")
        if tag == 0x17:
            digits = ("20" if digits < "50" else "19") + digits
        year, month, *rest = (digits[:4], *(digits[at : at + 2] for at in range(4, 14, 2)))
        name = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
        day, hour, minute, second = rest
        moment = f"{name[int(month) - 1]} {day} {hour}:{minute}:{second} {year} GMT"
        found.append(float(ssl.cert_time_to_seconds(moment)))
    return min(found, default=None)


def _items(der: bytes) -> list[tuple[int, bytes]]:
    """Return the (tag, content) of every element in some DER; X.690, tags of one byte."""
    found, at = [], 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        found.append((tag, der[at : at + length]))
        at += length
    return found


class NotTlsError(QuorateError):
    """Bytes that are no TLS came on a port that speaks nothing else."""


class TlsPort:
    """How connections that one port has accepted become TLS."""

    def __init__(
        self,
        port: str,
        make_context: MakeContext,
        *,
        takes_plain: bool = False,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """Have no handshake under way.

        Args:
            port: its name, for the log.
            make_context: of one accepted connection.
            takes_plain: whether a connection that does not begin as TLS does is served all the same.
            timeout_s: for the first byte of a connection, for its handshake, and for its end.
        """
        self._port = port
        self._make_context = make_context
        self._takes_plain = takes_plain
        self._timeout_s = timeout_s
        self._pace = asyncio.Semaphore(HANDSHAKES_MAX)
        self.handshakes = 0
        self.failed = 0
        self._quiet_until_s = float("-inf")
        self._unlogged = 0

    async def open(self, factory: Callable[[], asyncio.BaseProtocol], accepted: socket.socket) -> None:
        """Shake hands, and hand the connection to a protocol; closes it, and logs why, if that fails.

        Args:
            factory: makes the protocol. accepted: without a byte read of it; not blocking.
        """
        loop = asyncio.get_running_loop()
        caller = _caller(accepted)
        try:
            async with asyncio.timeout(self._timeout_s):
                first = await _first_byte(loop, accepted)
                if not first:
                    accepted.close()
                    return
                if first != FIRST_BYTE:
                    if not self._takes_plain:
                        raise NotTlsError(f"it speaks no TLS, for its first byte is {first!r}")
                    await loop.connect_accepted_socket(factory, accepted)
                    return
            # It waits for its turn as long as that takes: its bytes are there, the others' too.
            async with self._pace:
                context = self._make_context()
                if isinstance(context, AcceptingContext):
                    context.accepted = accepted
                handshake = asyncio.ensure_future(
                    loop.connect_accepted_socket(
                        factory,
                        accepted,
                        ssl=context,
                        ssl_handshake_timeout=self._timeout_s,
                        ssl_shutdown_timeout=self._timeout_s,
                    )
                )
                try:
                    await asyncio.wait((handshake,), timeout=TURN_S)
                except asyncio.CancelledError:
                    handshake.cancel()
                    raise
            await handshake
            self.handshakes += 1
        except (TimeoutError, OSError, NotTlsError) as error:
            accepted.close()
            self._say(caller, error)

    def _say(self, caller: str, error: Exception) -> None:
        self.failed += 1
        now_s = asyncio.get_running_loop().time()
        if now_s < self._quiet_until_s:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last such line)" if self._unlogged else ""
        self._quiet_until_s, self._unlogged = now_s + QUIET_S, 0
        log.warning("no TLS with %s on the %s port: %s%s", caller, self._port, self._why(error), more)

    def _why(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is refused: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            told = _told(error)
            return "it gave no certificate" if "did not return a certificate" in told else told
        # asyncio's loops end a handshake that takes too long so.
        if isinstance(error, TimeoutError | ConnectionAbortedError):
            return f"the handshake was not done within {self._timeout_s:g} s"
        return str(error) or "it went away"


def _caller(accepted: socket.socket) -> str:
    try:
        name = accepted.getpeername()
    except OSError:
        return "a peer that has left"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "a local socket"


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _first_byte(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> bytes:
    """Return the first byte of a connection, which stays to be read; b"": it ended."""
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(accepted, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(accepted)
    return accepted.recv(1, socket.MSG_PEEK)


#: {OID of an attribute, as DER has it: RFC 2253's keyword}
_KEYWORDS: Final = {
    bytes((0x55, 4, 3)): "CN",
    bytes((0x55, 4, 6)): "C",
    bytes((0x55, 4, 7)): "L",
    bytes((0x55, 4, 8)): "ST",
    bytes((0x55, 4, 9)): "STREET",
    bytes((0x55, 4, 10)): "O",
    bytes((0x55, 4, 11)): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
#: {tag of UTF8String, PrintableString, TeletexString, IA5String, UniversalString, BMPString: its encoding}
_TEXTS: Final = {
    0x0C: "utf-8",
    0x13: "utf-8",
    0x14: "utf-8",
    0x16: "utf-8",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}


def peer_subject(transport: asyncio.BaseTransport) -> str | None:
    """Return the subject of the certificate that the other side of a connection proved; None: it has none."""
    if not transport.get_extra_info("peercert"):
        return None
    return subject_of(transport.get_extra_info("ssl_object").getpeercert(True))


def subject_of(der: bytes) -> str:
    """Return the subject of a certificate as RFC 2253 and Java's X500Principal write it, "CN=alice,O=x".

    Args:
        der: the certificate, sound.
    """
    # Certificate, TBSCertificate: [version], serial, algorithm, issuer, validity, subject.
    fields = _items(_items(_items(der)[0][1])[0][1])
    names = [
        "+".join(_attribute(*_items(pair)) for _, pair in _items(part))
        for _, part in _items(fields[5 if fields[0][0] == 0xA0 else 4][1])
    ]
    return ",".join(reversed(names))


def _attribute(kind: tuple[int, bytes], value: tuple[int, bytes]) -> str:
    keyword, (tag, content) = _KEYWORDS.get(kind[1]), value
    if keyword is None or tag not in _TEXTS:
        size = len(content).to_bytes((len(content).bit_length() + 7) // 8 or 1, "big")
        head = bytes((tag, *((0x80 | len(size),) if len(content) > 0x7F else ()))) + size
        return f"{keyword or _dotted(kind[1])}=#{(head + content).hex()}"
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", content.decode(_TEXTS[tag], "replace")).replace("\0", "\\00")
    return f"{keyword}=" + re.sub(r"^[ \r]+|[ \r]+\Z", _escape_each, text)


def _escape_each(matched: re.Match[str]) -> str:
    return "".join("\\" + each for each in matched[0])


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
