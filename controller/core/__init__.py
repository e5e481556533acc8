"""The controller as a pure machine: inputs go in, effects come out (machine.py).

Knows no client, no connection, no clock and no randomness: time and a seed come in. All of it is soft state.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.A], [0.C], [0.D], [1.5].
"""
