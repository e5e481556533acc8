"""Kafka's bytes: which requests exist in which versions, and how they are read and written.

Knows no broker and no socket. kio's schema is the source of every format; only Fetch responses and Produce
requests are packed by hand.
"""
