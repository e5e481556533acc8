"""`quorate import`: copies a ZooKeeper tree into an empty cluster, keeps it in step, and opens the cluster.

source.py reads a live ZooKeeper, files.py (with snapshots and logs) the files of a server; target.py writes
through the admin port; rounds.py compares and decides what is written.
"""
