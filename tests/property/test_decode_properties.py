"""`txnwatch decode` with files that nobody has written in good faith: an answer or one line, and never a traceback."""

from __future__ import annotations

import contextlib
import gzip
import io
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.batches import a_batch, a_marker, a_record
from support.snapshot_files import PRODUCER, a_snapshot
from support.transaction_log import a_key, a_value
from txnwatch.cli.main import main
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.printed import bytes_of, printed_records

BASE = "00000000000000000042"
VALUE = a_value(TransactionLogValue(1, 9, 3, 60_000, TransactionState.ONGOING, (("orders", (0,)),), 1, 1))
LOGGED = a_batch(producer_id=-1, transactional=False, records=[a_record(key=a_key("app"), value=VALUE)])
PRINTED = (
    '| offset: 5 CreateTime: 9 key: {"type":"0","data":{"transactionalId":"app"}} payload: {"version":"1","data":'
    '{"producerId":7,"producerEpoch":1,"transactionTimeoutMs":5,"transactionStatus":1,"transactionPartitions":[{"topic":'
    '"o","partitionIds":[0]}],"transactionLastUpdateTimestampMs":1,"transactionStartTimestampMs":-1}}\n'
    "app::TransactionMetadata(transactionalId=app, producerId=7, producerEpoch=0, txnTimeoutMs=6, state=Ongoing, "
    "pendingState=None, topicPartitions=HashSet(a-0), txnStartTimestamp=5, txnLastUpdateTimestamp=2)\n"
)
WHOLE = {
    f"{BASE}.log": a_batch() + a_marker(1),
    "evidence": LOGGED + LOGGED,
    f"{BASE}.snapshot": a_snapshot([PRODUCER, PRODUCER]),
    "pasted.txt": PRINTED.encode(),
    "value.txt": VALUE.hex(" ").encode(),
}
NAMES = st.sampled_from(sorted(WHOLE))


def decode(name: str, content: bytes, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        path = Path(folder) / name
        path.write_bytes(content)
        code = main(["decode", "--file", str(path), *arguments])
    return code, out.getvalue(), err.getvalue()


def check(name: str, content: bytes, *arguments: str) -> int:
    code, out, err = decode(name, content, *arguments)
    assert code in {0, 1, 2}
    assert (code == 0) <= (err == "")
    assert all(line.isprintable() for line in (out + err).splitlines())
    if code:
        assert err.count("\n") == 1 or "not checked: " in out
    return code


@given(NAMES, st.binary(max_size=300))
def test_random_bytes_are_refused_or_shown(name: str, content: bytes) -> None:
    check(name, content)


@given(NAMES, st.data(), st.sampled_from(["", ".gz"]))
def test_every_beginning_of_a_file_is_refused_or_shown(name: str, data: st.DataObject, packed: str) -> None:
    whole = gzip.compress(WHOLE[name]) if packed else WHOLE[name]
    check(name + packed, whole[: data.draw(st.integers(0, len(whole)))])


@given(NAMES, st.data(), st.sampled_from([(), ("--offset", "3"), ("--count", "1"), ("--transaction-log",)]))
def test_a_file_with_changed_bytes_is_refused_or_shown(
    name: str, data: st.DataObject, arguments: tuple[str, ...]
) -> None:
    content = bytearray(WHOLE[name])
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    check(name, bytes(content), *arguments)


def test_a_whole_file_is_shown() -> None:
    assert {name: check(name, content) for name, content in WHOLE.items()} == dict.fromkeys(WHOLE, 0)


@given(st.binary(max_size=80))
def test_bytes_in_any_form_are_the_bytes(content: bytes) -> None:
    assert bytes_of(content.hex(":")) == bytes_of(content.hex(" ")) == bytes_of("0x" + content.hex()) == content
    assert bytes_of(repr(content)) == bytes_of(repr(bytearray(content))) == content


@given(st.text(max_size=120))
def test_any_text_is_bytes_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(bytes_of(text), bytes)


@given(st.data())
def test_any_change_of_a_printed_text_leaves_records_and_problems(data: st.DataObject) -> None:
    text = PRINTED
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=4)) + text[at + data.draw(st.integers(0, 4)) :]
    lines = [found.line for found in printed_records(text) if hasattr(found, "line")]
    assert lines == sorted(lines)
