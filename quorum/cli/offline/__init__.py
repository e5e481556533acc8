"""What can be learned from a data directory that no node uses: journal and snapshots, also damaged ones.

Everything here only reads. What is torn and what is damage is judged by the code that a starting node runs;
what that code does not look at any more, behind damage, is read as far as it can be.

Source: architecture, "Command line"; raft, "Journal" and "Snapshots".
"""
