"""Rows from the stateful operator to the driver: one finding each, encoded as all of the model is.

The driver imports this, and nothing of what tasks need: Arrow alone takes a tenth of a second and 20 MB.
"""

from __future__ import annotations

from txnwatch.state.model.findings import Finding
from txnwatch.state.model.serializer import Serializer

OUTPUT_DDL = "finding BINARY"
FINDINGS = Serializer[Finding](Finding)
