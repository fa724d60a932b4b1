"""Rows from the stateful operator to the driver: one finding each, encoded as all of the model is."""

from __future__ import annotations

from txnwatch.state.model.findings import Finding
from txnwatch.state.model.serializer import Serializer

OUTPUT_DDL = "finding BINARY"
FINDINGS = Serializer[Finding](Finding)
