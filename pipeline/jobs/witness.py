"""Registers whose order their versions tell: judged by SQL windows, without a search.

A key qualifies if all its outcomes are known. Each write claims a version, each read names one, so there is
at most one order of them; it stands if no operation returned before one that it follows was called. A refused
`cas` needs a place where the version was another one: the earliest that real time allows, or else behind the
next write. A key for which these places do not agree, or anything else is odd, is left to the search, which
also finds the counter-example. So "plain" means linearizable, and the reverse does not hold.
Source: Wing and Gong 1993; pipeline.checks.registers (the model).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.checks import registers
from pipeline.checks.history import FAIL, OK, UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, WindowSpec

CHECK: Final = registers.CHECK


def plain_registers(rows: DataFrame) -> DataFrame:
    """Return run, key and judged of the registers that are linearizable for plain reasons."""
    from pyspark.sql import functions as F

    operations = _ranked(rows.where(F.col("operation").isNotNull()))
    # A comparison with something missing is odd, too.
    odd = F.max(F.coalesce("odd", F.lit(True)))
    judged = _with_places(_ordered(operations)).groupBy("run", "key")
    keys = judged.agg(odd.alias("odd"), F.count("*").alias("judged"))
    return keys.where(~F.col("odd")).select("run", "key", "judged")


def _ranked(rows: DataFrame) -> DataFrame:
    """Give each operation that matters its version, its rank (a write before the reads of its version), and
    what it shows of the value."""
    from pyspark.sql import functions as F

    is_read = F.col("operation") == "read"
    is_cas = F.col("operation") == "cas"
    refused = (F.col("outcome") == FAIL) & is_cas & (F.col("result") == f'"{registers.BAD_VERSION}"')
    matters = (F.col("outcome") == OK) | refused | ((F.col("outcome") == UNKNOWN) & ~is_read)
    part = F.get_json_object
    version = (
        F.when(refused, part("argument", "$[0]"))
        .when(is_read, part("result", "$[0]"))
        .otherwise(F.col("result"))
        .try_cast("bigint")
    )
    # As JSON, so that 1 and "1" differ.
    value = F.when(is_read, F.expr("to_json(variant_get(parse_json(result), '$[1]'))")).when(
        is_cas, F.expr("to_json(variant_get(parse_json(argument), '$[1]'))")
    )
    return rows.where(matters).select(
        "run",
        "key",
        "invoked_ns",
        "completed_ns",
        refused.alias("refused"),
        is_read.alias("is_read"),
        version.alias("version"),
        F.when(~refused, 2 * version + is_read.cast("int")).alias("rank"),
        F.coalesce(value, F.col("argument")).alias("value"),
        # What no order can explain from versions alone: an unknown outcome, or a result without a version.
        (
            (F.col("outcome") == UNKNOWN)
            | version.isNull()
            | (~refused & (version < 0))
            | ((F.col("operation") == "create") & (version != 0))
            | (F.col("operation").isin("write", "cas") & ~refused & (version < 1))
            | (is_cas & ~refused & (part("argument", "$[0]").try_cast("bigint") != version - 1))
        ).alias("odd"),
    )


def _ordered(operations: DataFrame) -> DataFrame:
    """Mark what contradicts the order of ranks: times, values, and versions without or with two writers."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    register = Window.partitionBy("run", "key")
    earlier = register.orderBy("rank").rangeBetween(Window.unboundedPreceding, -1)
    of_version = Window.partitionBy("run", "key", "refused", "version")
    refused = F.col("refused")
    writes = F.when(~F.col("is_read") & ~refused, 1).otherwise(0)
    ordered = (
        operations.withColumn("called", F.max(F.when(~refused, F.col("invoked_ns"))).over(earlier))
        .withColumn("writers", F.sum(writes).over(of_version))
        .withColumn("written", F.max(F.when(writes == 1, F.col("value"))).over(of_version))
        .withColumn("versions", F.sum(writes).over(register))
        .withColumn("newest", F.coalesce(F.max(F.when(~refused, F.col("version"))).over(register), F.lit(-1)))
        .withColumn("id", F.row_number().over(register.orderBy("invoked_ns", "completed_ns")))
    )
    late = F.coalesce(F.col("called") > F.col("completed_ns"), F.lit(False))
    wrong = late | (F.col("writers") != 1) | (F.col("written") != F.col("value"))
    return ordered.withColumn(
        "odd", F.col("odd") | (F.col("versions") != F.col("newest") + 1) | (~refused & wrong)
    )


def _with_places(operations: DataFrame) -> DataFrame:
    """Choose the version that each refused `cas` met, and mark those for which none is plain."""
    from pyspark.sql import functions as F

    before, behind = _before_and_behind()
    refused, is_call = F.col("refused"), F.col("event") == 0
    reached = F.max(F.when(~refused & ~is_call, F.col("rank"))).over(before)
    following = F.min(F.when(~refused & is_call, F.col("rank"))).over(behind)
    found = (
        _events(operations)
        .withColumns({"reached": reached, "following": following})
        .groupBy("run", "key", "id", "refused", "version", "newest", "odd", "invoked_ns", "completed_ns")
        .agg(
            F.max(F.when(is_call, F.col("reached"))).alias("reached"),
            F.max(F.when(~is_call, F.col("following"))).alias("following"),
        )
    )
    # Ranks are 2 * version, or one more for a read. Before any return the register is absent: version -1.
    low = F.coalesce(F.floor(F.col("reached") / 2), F.lit(-1))
    # What is met ends before a following write, and with the version of a following read.
    high = F.least(F.floor((F.col("following") - 1) / 2), F.col("newest"))
    met = F.when(refused, F.when(low == F.col("version"), low + 1).otherwise(low))
    placed = found.withColumn("met", met).withColumn("odd", F.col("odd") | (refused & (met > high)))
    # One that followed another in time must not have met an older version.
    met_before = F.coalesce(F.max(F.when(~is_call, F.col("met"))).over(before), F.lit(-1))
    return (
        _events(placed)
        .withColumn("met_before", met_before)
        .where(is_call)
        .withColumn("odd", F.col("odd") | (refused & (F.col("met_before") > F.col("met"))))
    )


def _events(operations: DataFrame) -> DataFrame:
    """Return two rows for each operation: event 0, its call, and 1, its return."""
    from pyspark.sql import functions as F

    return operations.select(
        "*", F.posexplode(F.array("invoked_ns", "completed_ns")).alias("event", "time_ns")
    )


def _before_and_behind() -> tuple[WindowSpec, WindowSpec]:
    """Windows over the events of a register before and behind the row's.

    A call at the instant of a return is before it, since the two may have overlapped.
    """
    from pyspark.sql import Window

    by_time = Window.partitionBy("run", "key").orderBy("time_ns", "event")
    before = by_time.rowsBetween(Window.unboundedPreceding, -1)
    return before, by_time.rowsBetween(1, Window.unboundedFollowing)
