"""The client port: connections that speak ZooKeeper's protocol, and what they share.

`requests` reads requests and keeps their order, `frontend` joins all connections with the replica below,
`handshake` and `reads` decide single requests, `words` answers
four-letter words, `listener` accepts. Everything here is soft state: it dies with the process, and clients
rebuild it by coming back.
"""
