"""The replicated state machine of the metadata quorum: znodes, sessions, transactions, watches, snapshots.

It decides what a committed log entry does: results, events, zxids and digests. It is pure: equal entries give
equal bytes on every node and under every hash seed. It knows no clock, randomness, file, socket, log or
thread; stamps come in with the entries. Hard state lives in `machine.StateMachine`; the watch table in
`watches` is soft state of one node.

Source: ARCHITECTURE.md, "Life of a write"; docs/concepts/guarantees.md, "Sessions and watches"; ZooKeeper
programmer's guide 3.9.
"""
