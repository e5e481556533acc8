"""What the controller decides. Pure: the state of the cluster goes in, records and requests come out.

Knows no client, no connection, no time and no randomness; the numbers that fence come in as arguments. All
of it is soft state, read from the quorum by `controller.runtime`.
Source: control-plane design, "Controller"; seeds [0.A], [0.C], [0.D], [1.5].
"""
