"""The Kafka-style controller: elections, partition and replica states, reassignment.

Imports the quorum's client and records (`quorum.client`, `quorum.metadata`) and nothing of
`broker` or `pipeline`.
Nothing stands here yet.
"""
