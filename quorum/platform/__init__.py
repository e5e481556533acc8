"""What touches the machine: the contracts of clock and disk, their real halves, sockets to listen on, the
terminal.

Knows nothing of Raft, znodes or brokers; every package may use it.
"""
