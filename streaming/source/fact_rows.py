"""The rows of facts for Spark users; txnwatch's own job uses the packed format instead (packed_facts.py).

All kinds of facts are in one table, because partition facts, coordinator facts and the barrier must be in one batch
under one offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from txnwatch.state.model.facts import Fact
from txnwatch.streaming.source.packed_facts import by_bucket
from txnwatch.streaming.source.row_format import Row, RowFormat, row_of

FACTS: Final = RowFormat(Fact, pa.field("bucket", pa.int32()))


def fact_rows(facts: Iterable[Fact], buckets: int) -> Iterator[Row]:
    """Rows of facts. Facts about all producers are copied to every bucket."""
    own, shared = by_bucket(facts, buckets)
    for_all = [row_of(fact) for fact in shared]
    for bucket, of_bucket in enumerate(own):
        yield from ({**row_of(fact), "bucket": bucket} for fact in of_bucket)
        yield from ({**row, "bucket": bucket} for row in for_all)
