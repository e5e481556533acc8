"""A quorum client of which one call fails, with an error of any class that calls can meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from quorum.client import (
    Client,
    ClientClosedError,
    ClientError,
    ConnectionLossError,
    InvalidArgumentError,
    MultiFailedError,
    NoAuthError,
    NoNodeError,
    NoServerError,
    RequestTooLargeError,
    ServerError,
    WatchOverflowError,
)
from quorum.client.errors import SaslRefusedError, server_error
from quorum.errors import CODE_NUMBERS, CODES, QuorateError
from quorum.metadata.errors import ContendedError, MetadataDecodeError

_SERVED: Final = [server_error(code, "/x") for code in CODES if code != 0]
#: Codes without a class of their own: one that says nothing, one that is final, one that passes.
_BARE: Final = tuple(CODE_NUMBERS[each] for each in ("SYSTEMERROR", "QUOTAEXCEEDED", "THROTTLEDOP"))
#: One error of each class that calls of a client raise, and of each kind of code that a server may answer.
ERRORS: Final[dict[str, QuorateError]] = {
    **{
        f"{type(each).__name__}{each.server_code}": each
        for each in _SERVED
        if type(each) is not ServerError or each.server_code in _BARE
    },
    "NoParentError": server_error(-101, "/x", creating=True),
    "ConnectionLossError, sent": ConnectionLossError("x", "a test", sent=True),
    "ConnectionLossError, not sent": ConnectionLossError("x", "a test", sent=False),
    "ClientClosedError": ClientClosedError(),
    "InvalidArgumentError": InvalidArgumentError("x", "a test"),
    "RequestTooLargeError": RequestTooLargeError("x", 2, 1),
    "WatchOverflowError": WatchOverflowError(1),
    "SaslRefusedError": SaslRefusedError(CODE_NUMBERS["AUTHFAILED"], "x"),
    "NoServerError": NoServerError("a test"),
    "MultiFailedError, fence": MultiFailedError(0, NoNodeError(-101, "/x")),
    "MultiFailedError, race": MultiFailedError(1, NoNodeError(-101, "/x")),
    "MultiFailedError, refused": MultiFailedError(1, NoAuthError(-102, "/x")),
    "ContendedError": ContendedError("x", 1),
    "MetadataDecodeError": MetadataDecodeError("/x", "", "y", "z"),
}

_CALLS: Final = frozenset(
    {
        *("create", "create2", "delete", "exists", "get", "set", "get_children", "get_children2"),
        *("multi", "sync", "add_watch", "remove_watches", "read_all"),
    }
)


class FailingClient:
    """A client that hands everything on; `arm` says which call fails."""

    def __init__(self, client: Client) -> None:
        """Fail nothing yet."""
        self._client = client
        self._left = 0
        self._error: BaseException | None = None

    @property
    def is_armed(self) -> bool:
        """Whether the call that fails is still to come."""
        return self._error is not None

    def arm(self, error: BaseException | None, left: int = 0) -> None:
        """Let an error be the outcome of one call, after so many others; None: of no call."""
        self._error, self._left = error, left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._failing(found) if name in _CALLS else found

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def failing(*given: Any, **named: Any) -> Any:
            if self._error is not None:
                self._left -= 1
                if self._left < 0:
                    error, self._error = self._error, None
                    raise error
            return await call(*given, **named)

        return failing

    @property
    def as_client(self) -> Client:
        """This client, for whoever takes a Client."""
        return cast("Client", self)


def error_classes(root: type[Any] = ClientError) -> Iterator[type[Any]]:
    """Every class of errors of the client below one."""
    for each in root.__subclasses__():
        yield each
        yield from error_classes(each)


_UNTESTED: Final = set(error_classes()) - {type(each) for each in ERRORS.values()}
assert not _UNTESTED, _UNTESTED
