"""One member put together: replica, storage, snapshotting, digests, and what it shows."""
