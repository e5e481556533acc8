"""How a broker comes to an office, and what it may write while it holds it.

`plans` holds the pure decisions, `store` the elections, registrations and versioned writes over a client,
`fenced` a multi behind the controller epoch, `published` what a broker reads at its start.
"""
