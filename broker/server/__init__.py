"""The broker as Kafka clients, followers and the controller see it.

`listener` and `connection` carry frames, `handlers` finds who answers a request, `api` has one file for each
kind of request. What the handlers need of the broker is named in `services`.
"""
