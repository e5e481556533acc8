"""Connections between members: hello, authentication, frames, and which messages are let in.

pysyncobj replaces `socket.inet_ntop` by one for Windows when it is imported, on every system; and what
else shares the process must not notice. So the first import of it is here and puts the function back.
"""

import socket

_inet_ntop = socket.inet_ntop
import pysyncobj  # noqa: E402, F401 - between the two lines that keep the function

socket.inet_ntop = _inet_ntop
