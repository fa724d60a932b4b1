"""Who has the key can sign; a signature holds at one place, for one key and one value; the key is never shown."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from txnwatch.librdkafka import mode_warning
from txnwatch.sinks.delivery.encoding import (
    Keys,
    read_keys,
    redis_place,
    topic_place,
    with_signature,
    without_signature,
)
from txnwatch.state.model.errors import ConfigError, SkipReason

FORMER, CURRENT = "0" * 64, "1" * 64
PLACE = topic_place("cluster", "txnwatch.events")


def a_file(directory: Path, *lines: str, mode: int = 0o600) -> Path:
    path = directory / "keys"
    path.write_text("\n".join(lines))
    path.chmod(mode)
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return read_keys(a_file(tmp_path, "# of this year", "", CURRENT, f" {FORMER} "))


def test_a_signature_is_valid_for_its_record(keys: Keys) -> None:
    signature = keys.sign(PLACE, "key", b"value")
    assert keys.problem(PLACE, "key", b"value", signature) is None
    assert keys.problem(PLACE, "key", b"value", signature.encode()) is None


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (PLACE, "key", b"Value"),
        (PLACE, "another", b"value"),
        (topic_place("another", "txnwatch.events"), "key", b"value"),
        (topic_place("cluster", "another"), "key", b"value"),
        (redis_place("cluster"), "key", b"value"),
        (PLACE, "keyv", b"alue"),
    ],
    ids=["value", "key", "cluster", "topic", "redis", "shifted"],
)
def test_a_changed_or_copied_record_has_no_valid_signature(keys: Keys, place: str, key: str, value: bytes) -> None:
    signature = keys.sign(PLACE, "key", b"value")
    assert keys.problem(place, key, value, signature) is SkipReason.BAD_SIGNATURE


@pytest.mark.parametrize(
    "value", [b'{"a":"b"}', b"\xc3\x01avro", b"\x00\x00\x00\x00\x07framed"], ids=["json", "avro", "framed"]
)
def test_the_signature_is_the_end_of_the_value_and_can_be_removed(keys: Keys, value: bytes) -> None:
    signature = keys.sign(PLACE, "key", value)
    signed = with_signature(value, signature)
    assert without_signature(signed) == (value, signature.encode())
    assert without_signature(value) == (value, None)


def test_a_signed_json_value_is_json(keys: Keys) -> None:
    signature = keys.sign(PLACE, "key", b'{"a":"b"}')
    assert json.loads(with_signature(b'{"a":"b"}', signature)) == {"a": "b", "signature": signature}


@pytest.mark.parametrize("cut", [1, 3, 40, 66, 67, 68, 82])
def test_a_signature_that_is_cut_is_none(keys: Keys, cut: int) -> None:
    for value in (b'{"a":"b"}', b"\xc3\x01avro"):
        whole = with_signature(value, keys.sign(PLACE, "key", value))
        for part in (whole[:-cut], whole[cut:]):
            body, signature = without_signature(part)
            assert signature is None or keys.problem(PLACE, "key", body, signature) is SkipReason.BAD_SIGNATURE


@pytest.mark.parametrize("given", ["", "v1=", "v2=00", "\u00fc", b"\xff\x00", "v1=" + "0" * 64])
def test_a_text_that_is_no_signature_is_invalid(keys: Keys, given: str | bytes) -> None:
    assert keys.problem(PLACE, "key", b"value", given) is SkipReason.BAD_SIGNATURE


def test_nothing_is_no_signature(keys: Keys) -> None:
    assert keys.problem(PLACE, "key", b"value", None) is SkipReason.UNSIGNED


def test_a_key_is_replaced_in_three_steps_and_nothing_is_lost(tmp_path: Path) -> None:
    steps = [(FORMER,), (FORMER, CURRENT), (CURRENT, FORMER), (CURRENT,)]
    readers = [read_keys(a_file(tmp_path, *lines)) for lines in steps]
    for writer, reader in itertools.pairwise(readers):
        for one, other in ((writer, reader), (reader, writer)):
            assert other.problem(PLACE, "key", b"value", one.sign(PLACE, "key", b"value")) is None
    first, last = readers[0], readers[-1]
    assert last.problem(PLACE, "key", b"value", first.sign(PLACE, "key", b"value")) is SkipReason.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("lines", "message"),
    [((), "found none"), (("# only a comment",), "found none"), ((CURRENT, "short"), "key 2 is shorter")],
)
def test_a_file_without_a_key_is_refused_and_shows_none(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read_keys(a_file(tmp_path, *lines))
    assert "short'" not in str(refused.value)
    assert CURRENT not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such: No such file"):
        read_keys(tmp_path / "no-such")


def test_keys_are_not_shown(keys: Keys) -> None:
    assert CURRENT not in repr(keys)
    assert FORMER not in f"{keys}"


@pytest.mark.parametrize(("mode", "is_warned"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True)])
def test_a_file_that_others_may_read_is_warned_of(tmp_path: Path, mode: int, *, is_warned: bool) -> None:
    warning = mode_warning(a_file(tmp_path, CURRENT, mode=mode))
    assert (warning is not None) is is_warned
    assert warning is None or f"mode {mode:04o}" in warning
