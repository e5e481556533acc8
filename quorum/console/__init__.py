"""`quorate console`: a server of its own that shows a cluster to a browser, over the nodes' admin ports."""
