"""The engine: hosts the pure core inside pysyncobj's SyncObj and carries out its Ready."""

import quorum.raft.peers  # noqa: F401 - imports pysyncobj without its side effect on `socket`
