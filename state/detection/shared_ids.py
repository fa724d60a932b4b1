"""One producer id that two transactional ids use: a cluster that was restored from a backup may give it out again.

Data has a producer id and no transactional id, so it cannot be known whose it is. The view of a producer id is that of
one transactional id, with the name of another one (`also_used_by`). Law:

  * A record of another id never replaces a live transaction, whose marker will come.
  * Nothing is inherited from one id to the other: who used an epoch is not known.
  * The name stays. The fresh read describes both ids, and with two ids it confirms no hang (evidence/confirmation.py).
  * No stray write is proven: the other id may have owned the data.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.epoch_lineage import follow
from txnwatch.state.model.transaction import CoordinatorView


def is_of_another_id(known: CoordinatorView | None, view: CoordinatorView) -> bool:
    """Whether a record about a producer id belongs to another transactional id than the known view."""
    return known is not None and known.transactional_id != view.transactional_id


def is_shared(view: CoordinatorView | None) -> bool:
    """Whether two transactional ids have had the producer id of a view."""
    return view is not None and view.also_used_by is not None


def view_of_two(known: CoordinatorView, view: CoordinatorView, *, is_newer: bool) -> CoordinatorView:
    """The view of a producer id after a record of another transactional id than the known one."""
    is_kept = (known.is_live and not known.is_unseen) or not (view.is_live or is_newer)
    if is_kept:
        return replace(known, also_used_by=view.transactional_id)
    return replace(follow(None, view, is_consecutive=False), also_used_by=known.transactional_id)
