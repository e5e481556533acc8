"""Which numbers a request can carry: jute's int and long are signed, of 32 and 64 bits.

Pure. A number is looked at where the caller gave it, so that the error names the argument and nothing of the
request has left; the codec below would only say that some number does not fit.
Source: zookeeper.jute (ZooKeeper 3.9).
"""

from __future__ import annotations

from typing import Final

from quorum.client.errors import InvalidArgumentError

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def int32(operation: str, path: str, field: str, value: int) -> int:
    """Return a number that fits into 32 bits.

    Args:
        operation: whose argument it is; this and the next two are for the error.
        path: of the operation, "" where it has none.
        field: name of the argument.
        value: from INT32_MIN to INT32_MAX.

    Raises:
        InvalidArgumentError: it is not a whole number, or does not fit.
    """
    return whole(operation, path, field, value, INT32_MIN, INT32_MAX)


def int64(operation: str, path: str, field: str, value: int) -> int:
    """Return a number that fits into 64 bits; otherwise as int32."""
    return whole(operation, path, field, value, INT64_MIN, INT64_MAX)


def whole(operation: str, path: str, field: str, value: object, low: int, high: int | None) -> int:
    """Return a whole number from low to high, both inclusive, or from low up if high is None.

    Raises:
        InvalidArgumentError: it is none.
    """
    if isinstance(value, int) and low <= value and (high is None or value <= high):
        return value
    raise InvalidArgumentError(
        f"{operation} {path}".rstrip(),
        f"{field} = {value!r}: no request can carry it",
        f"give a whole number from {low}" + ("" if high is None else f" to {high}"),
    )
