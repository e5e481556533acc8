"""Kafka's bytes, of whoever sends them: what all messages have in common, and how a peer is proved.

`apis` has the numbers of requests, `codes` the one table of Kafka's error codes, and `error_codes` says which
of them an error is answered with. `decoding` reads messages of strangers, `consumer_protocol` what members of
a group send each other. `frames` puts headers and lengths around bodies, `incoming` takes frames out of what
was received. `scram` proves the peer secret, in the two requests of `sasl`; `connection` is the client of a
broker's `broker` listener. What a message means is decided elsewhere.
"""
