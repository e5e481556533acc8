"""ZooKeeper's wire protocol as pure functions over bytes, in both directions: the server decodes requests and
encodes replies, the client encodes requests and decodes replies.

`protocol` holds the numbers, `operations` a row for each operation, `jute` the primitives, `requests` and
`replies` the records. Nothing here knows sockets, sessions or trees. Everything that cannot be decoded raises
`WireError` and nothing else.
"""
