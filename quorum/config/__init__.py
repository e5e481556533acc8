"""Every setting of a node, its range and its relations, and the tools that a broker's settings share."""
