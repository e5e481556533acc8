"""What a coordinator of groups decides: members, generations, assignments, and what is written of them. Pure.

Knows no clock, no socket and no quorum: what has happened goes into `machine.py` with the time, and effects
come out. An answer leaves after every record that was decided before it is durable.
"""
