"""What is wrong with brokers, topics and groups, judged from what was seen of them. Pure."""
