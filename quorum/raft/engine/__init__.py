"""The engine: carries out what the core says. QuorateSyncObj wraps it in pysyncobj's interface."""

import quorum.raft.peers  # noqa: F401 - imports pysyncobj without its side effect on `socket`
