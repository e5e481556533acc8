"""Connections between members: hello, authentication, frames, and which messages are let in."""
