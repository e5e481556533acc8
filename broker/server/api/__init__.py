"""The handlers: one file for each kind of request, each a function from services and a call to an answer.

A handler knows nothing of sockets and frames. It answers with values that the codec writes in the version of
the request, or with parts that are packed already.
"""
