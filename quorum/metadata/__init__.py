"""The typed records of the control plane: values (`records`, Kafka's JSON formats) and their `paths`.

`reading` reads them through a client; `controller.election` decides which mandate may write what.
"""
