"""What clients do while nemeses strike; each workload records histories and says who judges them."""

from __future__ import annotations

from typing import Final

from tests.chaos.workloads.appends import Appends
from tests.chaos.workloads.bank import Bank
from tests.chaos.workloads.base import Workload
from tests.chaos.workloads.compacted import Compacted
from tests.chaos.workloads.epochs import Epochs
from tests.chaos.workloads.groups import Groups
from tests.chaos.workloads.locks import Locks
from tests.chaos.workloads.records import Records
from tests.chaos.workloads.registers import Registers
from tests.chaos.workloads.sessions import Sessions
from tests.chaos.workloads.states import States
from tests.chaos.workloads.transactions import Transactions
from tests.chaos.workloads.watches import Watches

WORKLOADS: Final[dict[str, type[Workload]]] = {
    each.name: each
    for each in (
        *(Registers, Appends, Bank, Locks, Sessions, Watches, Epochs),
        *(Records, States, Groups, Transactions, Compacted),
    )
}
