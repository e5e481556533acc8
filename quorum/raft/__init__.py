"""Replication of one log over a few nodes.

``core/`` decides (pure Raft: message in, ``Ready`` out), the other folders own what the core may not
touch: journal and snapshot files, identity, the codec and transport of peer messages, and the engine that
carries out what it says, inside pysyncobj's ``SyncObj``. Nothing here knows what a command means; that is
``quorum/core``.
"""
