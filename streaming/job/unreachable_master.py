"""Why no master of a Spark cluster has answered, from the log of the JVM.

After a minute Spark stops its own context while the start goes on. So the error of the start is one of several
consequences, for example that the context is stopped. The reason is in the log.
"""

from __future__ import annotations

import re
from typing import Final

from txnwatch.state.model.errors import SparkError
from txnwatch.streaming.job.failure_table import advice_for
from txnwatch.streaming.job.failures import root_cause

_GIVEN_UP: Final = "All masters are unresponsive"
# An entry of the log goes on until the next line that begins with a date.
_ATTEMPT: Final = re.compile(r" Failed to connect to master (\S+)\n((?:(?!\d\d/\d\d/\d\d \d\d:).*\n?)*)")


def error_of_the_master(output: str, where: str) -> SparkError | None:
    """The error that names the master and why it was not reached; None if the start failed for another reason.

    Args:
        output: what Spark has written since the start.
        where: names the file with the output.
    """
    attempts = _ATTEMPT.findall(output)
    if not attempts or _GIVEN_UP not in output:
        return None
    master, stack = attempts[-1]
    cause = f"no connection to the master {master}: {root_cause(stack)}"
    return SparkError(f"Spark: {cause}; {advice_for(_GIVEN_UP)}; {where}")
