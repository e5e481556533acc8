"""Quorate's metadata quorum: a Raft-replicated znode tree that ZooKeeper clients can use unchanged.

Directions of import, kept by ``tests/tidy``: ``cli`` → ``node`` → ``server``, ``admin`` → ``replica`` →
``raft``, ``wire`` → ``core``. The two ``core`` packages (``quorum.core`` and ``quorum.raft.core``) know
nothing of clocks, randomness, files, sockets, logging or threads. Nothing in here imports ``controller``,
``broker`` or ``pipeline``.
"""

#: The version of the distribution; ``pyproject.toml`` reads it from here.
__version__ = "0.1.0"
