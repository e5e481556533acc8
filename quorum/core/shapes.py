"""What a command of the log looks like from the outside: anything at all may stand there. Pure, no state."""

from __future__ import annotations

from quorum.core.codes import UINT64_MAX


def opcode_of(command: object) -> int | None:
    """Return the operation that a command begins with; None where it is no command."""
    if type(command) is list and command:
        opcode = command[0]
        if type(opcode) is int:
            return opcode
    return None


def has_length(command: object, length: int) -> bool:
    """Tell whether a command has so many fields, its operation included."""
    return type(command) is list and len(command) == length


def is_uint64(number: object) -> bool:
    """Tell whether a value is an unsigned 64-bit number."""
    return type(number) is int and 0 <= number <= UINT64_MAX
