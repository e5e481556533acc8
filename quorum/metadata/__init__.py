"""The typed records of the control plane: values (`records`, Kafka's JSON formats) and their `paths`.

`reading` reads them through a client; who may write what is decided in `controller.election`.
"""
