"""The controller at work: it watches, reads, asks `controller.core`, writes fenced, and sends.

Everything here belongs to one event loop. Only store.py writes to the quorum.
"""
