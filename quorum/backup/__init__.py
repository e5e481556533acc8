"""Backups of a quorum: taken through an admin port, verified, and made the data directory of a new node."""
