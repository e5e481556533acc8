"""The coordinator of groups: its candidate, and the shell of its term.

The machine in broker.core.groups decides; this package reads the clock, waits, reads and writes. One
candidate in every broker, one term in the one that is elected.
"""
