"""An EvidenceStore in memory: what a file would hold between two starts."""

from __future__ import annotations

from txnwatch.state.evidence.proven_hang import StoredFindings


class KeptEvidence:
    """Attributes: `times` counts how often it was replaced."""

    def __init__(self) -> None:
        self._kept = StoredFindings()
        self.times = 0

    def load(self) -> StoredFindings:
        """See EvidenceStore."""
        return self._kept

    def keep(self, kept: StoredFindings) -> None:
        """See EvidenceStore."""
        self._kept, self.times = kept, self.times + 1
