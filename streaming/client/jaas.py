"""Java's notation of a login.

Separate from sasl.py, which imports kafka-python: the settings are read before the JVM begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPED = re.compile(r"\\(.)")
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of the login module in `sasl.jaas.config`."""
    found = _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    return {name: bare or _ESCAPED.sub(r"\1", double or single) for name, double, single, bare in found}
