"""The partition logs of a broker on its one disk: files, recovery, retention, and whose directory it is.

Knows records only as batches: their contents stay as the producer made them. Knows nothing of leaders,
in-sync replicas, connections or the quorum; replication decides what is appended, truncated and shown to
whom.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means"; ARCHITECTURE.md, "Life of a
record"; Kafka's log layout (3.9).
"""
