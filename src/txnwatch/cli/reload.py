"""SIGHUP: `txnwatch run` reads its configuration again and applies what can change without a restart.

Changed certificate files need no signal.

Law: the handler only sets a flag, and takes no lock, because the thread that it interrupts may hold that lock. The
thread that supervises the query reads the configuration. A SIGHUP never ends the process: if anything in the
configuration is invalid, nothing changes.

Settings that the query or the ledger has are applied by starting the query again in the same Spark session, between
two micro-batches. This is the restart that follows an error of the query, so it loses and repeats nothing.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.log_output import log_to_stdout
from txnwatch.config import THRESHOLDS, RunSettings
from txnwatch.owners.owners_file import read_owners
from txnwatch.state.model.errors import TxnwatchError

if TYPE_CHECKING:
    from txnwatch.app import CertificateFiles, Watch
    from txnwatch.watch.coverage import TimeoutLimit
    from txnwatch.web.server import WebServer

LIMITS = ("max_offsets_per_trigger", "max_bytes_per_trigger", "max_bytes_per_second", "max_read_ms_per_trigger")
ABORTS = tuple(name for name in RunSettings.model_fields if name.startswith(("abort_", "auto_abort")))
OWNERS = "owners_file"
OF_THE_QUERY = frozenset((*THRESHOLDS, *LIMITS, *ABORTS, OWNERS))
AT_ONCE = frozenset({"log_format"})


class Reload:
    """A request to read the configuration again.

    Args:
        load: reads the settings from flags, environment and file.

    Attributes:
        requested: whether a SIGHUP has come since the last reading.
        is_due: the query has to start again; no micro-batch begins until then.
        server: the HTTP server, if there is one.
        certificates: the files that are used without a signal when they change.
        timeout_limit: the limit that the query gets without a signal when it changes.
    """

    def __init__(self, load: Callable[[], RunSettings]) -> None:
        self._load = load
        self.requested = False
        self.is_due = False
        self.server: WebServer | None = None
        self.certificates: CertificateFiles | None = None
        self.timeout_limit: TimeoutLimit | None = None

    def request(self) -> None:
        """Requests it; `apply` does the work."""
        self.requested = True

    @contextlib.contextmanager
    def on_signal(self) -> Iterator[None]:
        """SIGHUP requests it while the block runs."""

        def on_signal(_: int, __: FrameType | None) -> None:
            self.request()

        former = signal.signal(signal.SIGHUP, on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, former)

    def apply(self, watch: Watch) -> bool:
        """Applies what has changed, if it was requested. Returns whether the query has to start again."""
        if not self.requested:
            return self._is_due_without_a_signal()
        from txnwatch.web.web_config import read_web_config  # noqa: PLC0415 - the start does not wait for it

        self.requested = False
        former = watch.settings
        try:
            fresh = self._load()
            web = read_web_config(former.http_web_config_file)
            owners = read_owners(fresh.owners_file)
        except (TxnwatchError, OSError) as exc:
            LOG.warning(f"SIGHUP: nothing is reloaded: {exc}")
            return self.is_due
        changed = [name for name in RunSettings.model_fields if getattr(fresh, name) != getattr(former, name)]
        if owners != watch.owners and OWNERS not in changed:  # the content of the file has changed
            changed.append(OWNERS)
        watch.owners = owners
        reloaded = [name for name in changed if name in OF_THE_QUERY | AT_ONCE]
        watch.settings = former.model_copy(update={name: getattr(fresh, name) for name in reloaded})
        log_to_stdout(watch.settings.log_format)
        if self.server is not None:
            self.server.protect(web)
        self.is_due |= not OF_THE_QUERY.isdisjoint(reloaded)
        LOG.info(_summary(reloaded, [name for name in changed if name not in reloaded], is_due=self.is_due))
        return self.is_due

    def _is_due_without_a_signal(self) -> bool:
        """The clients of the events topic read certificates only when they are made, so they are made again."""
        if not self.is_due and self.certificates is not None and self.certificates.are_renewed():
            LOG.info("the certificate files have changed, and the query starts again")
            self.is_due = True
        change = self.timeout_limit.take_change() if self.timeout_limit is not None else None
        if change is not None:
            LOG.info(f"{change}: the query starts again")
            self.is_due = True
        return self.is_due


def _summary(reloaded: list[str], left: list[str], *, is_due: bool) -> str:
    found = f"reloaded {', '.join(reloaded)}" if reloaded else "no setting that can be reloaded has changed"
    again = ", and the query starts again" if is_due else ""
    restart = f"; txnwatch has to be restarted for {', '.join(left)}" if left else ""
    return f"SIGHUP: {found}{again}{restart}"
