"""The engine: hosts the pure core inside pysyncobj's SyncObj and carries out its Ready."""
