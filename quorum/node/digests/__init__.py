"""Comparison of the state between members: digests of applied entries at equal log indexes.

`history` keeps a node's own, `judge` decides which node is the odd one, `exchange` carries reports, questions
and verdicts. How digests are computed is the state machine's business.

Source: raft, "Snapshots" (Digests).
"""
