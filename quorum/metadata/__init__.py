"""The typed records of the metadata quorum, and the operations on them that Kafka's control plane is made of.

`records` holds the values (Kafka's JSON formats), `paths` where they live, `plans` the pure decisions,
`store` the elections, registrations and versioned writes over a client, `fenced` the controller's batched
writes behind the controller epoch.
"""
