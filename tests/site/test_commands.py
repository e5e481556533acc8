"""The harness that runs a page's commands: what it takes from a page, and what it does not let pass."""
