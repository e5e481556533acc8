"""What the controller and the brokers say to each other: control requests, their frames, the way to a broker.

`codes` is the one table of Kafka's error codes; `entities` are the four control requests and their answers;
`packing` packs the requests from bytes that all receivers share; `decoding` reads messages of strangers;
`frames` puts headers and lengths around bodies; `scram` proves the peer secret, in the two requests of
`sasl`; `connection` is the client of a broker's `broker` listener. Which request is due, and what a request
changes, is decided elsewhere.
"""
