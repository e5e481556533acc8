"""The Kafka-style controller: elections, partition states, topics, and the requests that tell brokers.

`core` decides and is pure, `wire` holds Kafka's bytes, `messages` the control requests, `election` how a
broker comes to an office, `runtime` watches, reads, writes and sends what the core wants. Imports the
quorum's client and records (`quorum.client`, `quorum.metadata`) and nothing of `broker` or `pipeline`.
"""
