"""What a coordinator of groups decides: members, generations, assignments. Pure.

Knows no clock, no socket and no quorum: times, names of members and tickets of waiting requests come in, and
answers and records to write come out. An answer leaves after every record that was decided before it is
durable; that is the shell's part (broker.groups).
"""
