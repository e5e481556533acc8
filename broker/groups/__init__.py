"""The coordinator of groups: its election, what it keeps in the quorum, its one loop.

The machines in broker.core.groups decide; this package reads the clock, waits, and writes. One candidate in
every broker, one term in the one that is elected.
"""
