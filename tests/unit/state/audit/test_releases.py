"""The release of a broker by its answers: the whole row has to fit."""

from __future__ import annotations

import pytest

from support.audited import broker
from txnwatch.state.audit.releases import Release, release_of

# What brokers of these releases answer: the highest versions, and the lowest one of JoinGroup.
_KEYS = (0, 1, 2, 11, 24, 26, 27, 35, 66)
LIVE = {
    "4.4.0": ((13, 18, 11, 9, 5, 5, 2, 5, 2), 33, 0),
    "4.3.1": ((13, 18, 11, 9, 5, 5, 2, 5, 2), 30, 0),
    "4.0.0": ((12, 17, 10, 9, 5, 5, 1, 4, 1), 25, 2),
    "3.9.2": ((11, 17, 9, 9, 5, 4, 1, 4, 1), 21, 0),
    "3.3.2": ((9, 13, 7, 9, 3, 3, 1, 4, 0), 7, 0),
}


@pytest.mark.parametrize("version", LIVE)
def test_the_answer_of_a_broker_shows_its_release(version: str) -> None:
    highest, metadata, _ = LIVE[version]
    versions = {key: (0, high) for key, high in zip(_KEYS, highest, strict=True)}
    assert str(release_of(versions, {"metadata.version": metadata})) == version[:3]


def test_a_row_that_differs_in_one_value_is_of_no_release() -> None:
    highest, metadata, _ = LIVE["4.4.0"]
    versions = {key: (0, high) for key, high in zip(_KEYS, highest, strict=True)}
    for key in versions:
        if key != 11:
            assert release_of({**versions, key: (0, 99)}, {"metadata.version": metadata}) is None
            assert release_of({at: one for at, one in versions.items() if at != key}, {"metadata.version": 33}) is None
    assert release_of(versions, {"metadata.version": 34}) is None
    assert release_of(versions, {}) is None


def test_with_zookeeper_a_broker_has_no_features() -> None:
    versions = dict(broker("3.3").versions) | {4: (0, 6), 6: (0, 7)}
    assert release_of(versions, {}) == Release(3, 3)
    assert release_of(versions | {6: (0, 8)}, {}) == Release(3, 4)


def test_only_4_0_0_refuses_old_versions_of_join_group() -> None:
    assert broker("4.0", lowest={11: 2}).is_4_0_0
    assert not broker("4.0").is_4_0_0
    assert not broker("4.2", lowest={11: 2}).is_4_0_0
