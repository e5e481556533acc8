"""What the controller and the brokers say to each other: the control requests and their answers.

`entities` are the four control requests and their answers; `packing` packs the requests from bytes that all
receivers share. Which request is due, and what a request changes, is decided elsewhere.
"""
