"""The broker: partition logs, replication, and the coordinator of consumer groups.

Imports the messages of `controller` and the quorum's client, and nothing of `pipeline`.
Nothing stands here yet.
"""
