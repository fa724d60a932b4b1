"""What `run` reads from the files that its settings name and that may refer to variables with secrets.

Law: they are read before the JVM begins, because no child process gets a variable from which a secret was read. They
are read once: a file may be a pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txnwatch.config import RunSettings
from txnwatch.setting_sources import client_properties

if TYPE_CHECKING:
    from txnwatch.push.push_file import PushFile
    from txnwatch.sinks.delivery.encoding import Keys


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The content of the files; what has no file is empty.

    Attributes:
        properties: of the client.
        keys: they sign the events.
        push: the targets of a push.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    keys: Keys | None = None
    push: PushFile | None = None


def read_named_files(settings: RunSettings, warn: Callable[[str], None]) -> NamedFiles:
    """Reads them; calls `warn` if other users may read the keys. A reader is imported only if its file is named.

    Raises:
        ConfigError: a file, or something that it refers to, cannot be read or is not valid.
    """
    properties, keys, push = client_properties(settings.command_config), None, None
    if settings.events_key_file is not None:
        from txnwatch.librdkafka import events_keys  # noqa: PLC0415

        keys = events_keys(settings.events_key_file, warn)
    if settings.push_file is not None:
        from txnwatch.push.push_file import read_push_file  # noqa: PLC0415

        push = read_push_file(settings.push_file)
    return NamedFiles(properties, keys, push)
