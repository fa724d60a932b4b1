"""The page of the tested ways to connect, from docs/ways-in.json: the results of the last `make long`."""

from __future__ import annotations

import json
from pathlib import Path

from page_tables import places

_NO_RESULT = "no result"
_COMMANDS = ("doctor", "find-hanging", "run", "abort")
_COLUMNS = (*_COMMANDS, "secrets")
_ABOUT = """\
Each row was tested on a real broker with one hanging transaction. *works* means: `doctor` found nothing missing,
`find-hanging` named the transaction, `run` published its incident, and `abort` ended it and published the result.
The column *secrets* has the result of a search for the passwords, keys and tokens of the method: in the output of all
commands, the events, the metrics, the checkpoint, temporary files, the arguments and environments of processes, and the
packets between `run` and the broker. With Kerberos it has the result of a search for the keys of the keytab in the
output and the temporary files of `doctor`, `find-hanging` and `run`.
[Connection and authentication](connection.md) has the properties of each row. The test is `tests/e2e/test_ways_in.py`,
and for Kerberos, with a real KDC, `tests/integration/test_kerberos.py`; `make long` runs them and writes this page."""
_EXCEPTIONS = """\
`AWS_MSK_IAM` is not in the table, because the tests cannot use a broker of MSK. A unit test verifies the signature of
the token and the message that carries it (`tests/unit/streaming/client/test_msk.py`). With a broker that refuses the
token, the commands show no secret of AWS (`tests/e2e/test_ways_in.py`).

The wheels of confluent-kafka are built without GSSAPI. So with GSSAPI, commands that use the events topic need a
confluent-kafka that you build from source. With the wheels `run` ends with exit code 2 before Spark starts, and
`doctor` shows what is missing."""


def ways_page(root: Path, generated: str) -> str:
    """docs/ways-in.md."""
    results: dict[str, dict[str, str]] = json.loads((root / "docs" / "ways-in.json").read_text())
    rows = [
        f"| {way} | {' | '.join(found.get(name, _NO_RESULT) for name in _COLUMNS)} |" for way, found in results.items()
    ]
    return "\n".join(
        [
            "# Tested authentication",
            "",
            generated,
            _ABOUT,
            "",
            f"{places(results.values())}.",
            "",
            f"| method | {' | '.join(f'`{name}`' for name in _COMMANDS)} | secrets |",
            f"|---|{'---|' * len(_COLUMNS)}",
            *rows,
            "",
            _EXCEPTIONS,
            "",
        ]
    )
