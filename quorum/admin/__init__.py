"""The HTTP interface of a node on its admin port: health, metrics and status.

It shows what the node says of itself and decides nothing. ``app.py`` holds the table of endpoints,
``metrics.py`` the Prometheus text, ``server.py`` the listening socket. It keeps no state but open
connections, and does not know Raft: a request to the leader leaves by ``members.ASK``.
"""
