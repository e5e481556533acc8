"""The replicas of one broker: roles by control requests, produce, fetch, followers, changes of the ISR."""
