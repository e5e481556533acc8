"""The shell of the controller: it watches, and carries out what the machine of `controller.core` wants.

Everything here belongs to one event loop. Only carrying.py and queue.py write to the quorum, each behind the
fence.
"""
