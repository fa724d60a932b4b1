"""Which minor release of Kafka a broker has, by the versions of the requests that it supports.

No request returns the release. Each minor release has its own row of highest versions. The patch releases of a minor
release have the same row, with one exception: 4.0.0 (`is_4_0_0`).

Law: the whole row must match, else the release is unknown. A fork or a proxy has other rows, and no finding rests on a
release that is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

# The keys of the requests in Kafka's protocol.
PRODUCE, FETCH, LIST_OFFSETS, LEADER_AND_ISR, UPDATE_METADATA, JOIN_GROUP = 0, 1, 2, 4, 6, 11
ADD_PARTITIONS, END_TXN, WRITE_MARKERS, DESCRIBE_LOG_DIRS, LIST_TRANSACTIONS = 24, 26, 27, 35, 66
METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"

Versions = Mapping[int, tuple[int, int]]  # the lowest and the highest version of each request, by its key


class Release(NamedTuple):
    """A minor release of Apache Kafka."""

    major: int
    minor: int

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.major}.{self.minor}"


SKIPS_MARKERS: Final = (Release(4, 3), Release(4, 4))  # KAFKA-20734

_KEYS: Final = (
    *(PRODUCE, FETCH, LIST_OFFSETS, ADD_PARTITIONS, END_TXN, WRITE_MARKERS, DESCRIBE_LOG_DIRS, LIST_TRANSACTIONS),
)
# The highest version of each of these requests, and the highest metadata.version; the schemas of Kafka's releases.
_ROWS: Final[dict[Release, tuple[tuple[int, ...], int | None]]] = {
    Release(3, 0): ((9, 12, 7, 3, 3, 1, 2, 0), None),
    Release(3, 1): ((9, 13, 7, 3, 3, 1, 2, 0), None),
    Release(3, 2): ((9, 13, 7, 3, 3, 1, 3, 0), None),
    Release(3, 3): ((9, 13, 7, 3, 3, 1, 4, 0), 7),
    Release(3, 4): ((9, 13, 7, 3, 3, 1, 4, 0), 8),
    Release(3, 5): ((9, 15, 8, 3, 3, 1, 4, 0), 11),
    Release(3, 6): ((9, 15, 8, 4, 3, 1, 4, 0), 14),
    Release(3, 7): ((10, 16, 8, 4, 3, 1, 4, 0), 19),
    Release(3, 8): ((11, 16, 8, 5, 4, 1, 4, 1), 20),
    Release(3, 9): ((11, 17, 9, 5, 4, 1, 4, 1), 21),
    Release(4, 0): ((12, 17, 10, 5, 5, 1, 4, 1), 25),
    Release(4, 1): ((13, 18, 10, 5, 5, 1, 4, 2), 27),
    Release(4, 2): ((13, 18, 11, 5, 5, 2, 4, 2), 29),
    Release(4, 3): ((13, 18, 11, 5, 5, 2, 5, 2), 30),
    Release(4, 4): ((13, 18, 11, 5, 5, 2, 5, 2), 33),
}
_UPDATE_METADATA_OF: Final = {Release(3, 3): 7, Release(3, 4): 8}  # with ZooKeeper, where they differ in nothing else


def release_of(versions: Versions, supported: Mapping[str, int]) -> Release | None:
    """The release of a broker; `supported` has the highest level of each feature. None if no row fits."""
    highest_versions = tuple(versions[key][1] if key in versions else -1 for key in _KEYS)
    level = supported.get(METADATA_VERSION)
    for release, (highest, metadata) in _ROWS.items():
        if highest_versions != highest:
            continue
        if metadata is None or (has_zookeeper(versions) and _fits_zookeeper(versions, release)):
            return release
        if metadata == level:
            return release
    return None


def _fits_zookeeper(versions: Versions, release: Release) -> bool:
    """Whether a broker in ZooKeeper mode, which has no features, can have this release."""
    wanted = _UPDATE_METADATA_OF.get(release)
    return wanted is None or versions.get(UPDATE_METADATA, (0, 0))[1] == wanted


def has_zookeeper(versions: Versions) -> bool:
    """Whether the broker is in ZooKeeper mode: in KRaft mode no broker supports LeaderAndIsr."""
    return LEADER_AND_ISR in versions


def is_4_0_0(versions: Versions) -> bool:
    """Whether a broker of release 4.0 is 4.0.0: later ones support old versions of JoinGroup again."""
    return versions.get(JOIN_GROUP, (0, 0))[0] == 2
