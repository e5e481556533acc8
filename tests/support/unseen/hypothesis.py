"""Stands in the way of Hypothesis where a test starts a server: kio loads it wherever it is installed.

A server that somebody runs has none, and to load it takes a fourth of a broker's start.
"""

raise ImportError("servers that tests start do not see Hypothesis")
