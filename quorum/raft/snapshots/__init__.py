"""Snapshot files: their format, how they are written and received, and how nodes exchange them."""
