"""The machine of transactions of one elected coordinator: pure and total, without a clock.

Source: ARCHITECTURE.md, "Life of a transaction"; KIP-98, KIP-360, KIP-447, KIP-890 (first part).
"""
