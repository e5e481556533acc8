"""What a term of a coordinator needs for transactions, where there are none."""

from __future__ import annotations

from broker.core.transactions.deciding import TransactionOptions
from broker.groups.transactions import TransactionGround
from controller.wire.connection import BrokerConnection


async def _no_id() -> int:
    raise AssertionError("no producer asks")


async def _no_connection(broker_id: int) -> BrokerConnection:
    raise AssertionError(f"no marker goes to broker {broker_id}")


NO_TRANSACTIONS = TransactionGround(TransactionOptions(), _no_id, _no_connection)
