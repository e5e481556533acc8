"""The Kafka-style controller: elections, partition states, topics, and the requests that tell brokers.

`core` decides and is pure, `messages` holds the control requests and the client of a broker's listener,
`runtime` watches, writes and sends. Imports the quorum's client and records (`quorum.client`,
`quorum.metadata`) and nothing of `broker` or `pipeline`. Reassignment, preferred leaders, controlled
shutdown and the queue channel are not here yet: they are further decisions in `core` and further causes of
a pass in `runtime.term`.
"""
