"""The fences of transactions: what keeps a stale coordinator or producer from acting.

Each is one function that is called through this module, so that a simulation can switch it off.
Source: ARCHITECTURE.md, "Life of a transaction"; KIP-98.
"""

from __future__ import annotations


def coordinator_epoch(version: int) -> int:
    """Return the version of /consumers/coordinator_epoch that every multi checks: no former one writes."""
    return version


def transaction_version(version: int) -> int:
    """Return the version of an id's znode that a multi is decided on; nothing passes a foreign write."""
    return version


def raised_epoch(epoch: int) -> int:
    """Return the epoch of a fence: with its marker, the log refuses the producer that had the one before."""
    return epoch + 1
