"""The forms of transactional ids: each maker's id is taken apart, and what is not certain is a guess."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.owners.id_shapes import KINDS, LONGEST, PATTERNS, SHAPES, IdShape, Rule, taken_apart
from txnwatch.state.model.ownership import Certainty, IdMaker, Subject

UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
OFFSETS = frozenset({"__consumer_offsets"})
GUESS, SURE = Certainty.POSSIBLE, Certainty.CERTAIN
_PART = re.compile(r"<([^<>:]+)(?::([^<>]+))?>")


def of(name: str, topics: set[str] | frozenset[str] = frozenset(), groups: set[str] | None = None) -> IdMaker | None:
    return taken_apart(Subject(name, topics=frozenset(topics), groups=frozenset(groups or ())))


def parts_of(found: IdMaker) -> dict[str, str]:
    return {part.name: part.value for part in found.parts}


# Ids as real clients make them; what is known besides; the framework, the name, and the certainty.
REAL = {
    "Streams with its group": (f"ledger-eos-{UUID}-2", {"groups": {"ledger-eos"}}, "Kafka Streams", "ledger-eos", SURE),
    "Streams without its group": (f"ledger-eos-{UUID}-2", {}, "Kafka Streams", "ledger-eos", GUESS),
    "another group": (f"ledger-eos-{UUID}-2", {"groups": {"ledger"}}, "Kafka Streams", "ledger-eos", GUESS),
    "Streams before 4.0": ("ledger-eos-0_11", {"groups": {"ledger-eos"}}, "Kafka Streams", "ledger-eos", SURE),
    "Streams 2.6": (f"ledger-{UUID}", {"groups": {"ledger"}}, "Kafka Streams", "ledger", SURE),
    "ksqlDB": (f"_confluent-ksql-default_query_CSAS_A_5-{UUID}-1", {}, "ksqlDB", "CSAS_A_5", SURE),
    "ksqlDB, shared": (
        f"_confluent-ksql-default_query_0-{UUID}-4",
        {},
        "ksqlDB",
        "_confluent-ksql-default_query_0",
        SURE,
    ),
    "a Connect task": (
        "connect-cluster-audit-jdbc-3",
        {"topics": {"audit", "connect-offsets"}},
        "Kafka Connect source task",
        "connect-cluster-audit-jdbc",
        SURE,
    ),
    "a Connect leader": (
        "connect-cluster-dwh",
        {"topics": {"connect-configs"}},
        "Kafka Connect leader",
        "dwh",
        SURE,
    ),
    "MirrorMaker": (
        "eu-mm2-MirrorSourceConnector-0",
        {"topics": {"mm2-offsets.eu.internal"}},
        "MirrorMaker 2",
        "eu",
        SURE,
    ),
    "Flink": ("dwh-orders-4-1187", {}, "Flink", "dwh-orders", GUESS),
    "Flink, one part": ("orders-4-1187", {}, "Flink", "orders", GUESS),
    "Flink, dynamic": ("dwh-2893412567-4-1187", {}, "Flink", "dwh", GUESS),
    "Flink until 1.14": (f"Sink: orders-{'0af3' * 8}-7", {}, "Flink", "Sink: orders", SURE),
    "not Flink": ("dwh-orders-4-1187", {"topics": OFFSETS}, "Faust", "dwh-orders", GUESS),
    "Spring": ("checkout-7", {}, "Spring Kafka", "checkout-", GUESS),
    "Spring, no separator": ("tx0", {}, "Spring Kafka", "tx", GUESS),
    "Spring, zeros are of the prefix": ("order007", {}, "Spring Kafka", "order00", GUESS),
    "Spring before 3.0": ("tx-billing.orders.3", {}, "Spring Kafka before 3.0", "tx-billing", GUESS),
    "Beam": ("producer_4_for_clicks-sink", {"topics": OFFSETS}, "Beam", "clicks-sink", SURE),
    "NiFi or Alpakka": (f"billing{UUID}", {}, "Alpakka Kafka", "billing", GUESS),
    "SeaTunnel": ("SeaTunnel4711-12", {}, "SeaTunnel", "SeaTunnel4711", SURE),
    "Iceberg": (f"lake-worker-txn-{UUID}-3", {"topics": OFFSETS}, "Iceberg sink of Connect", "lake-worker", SURE),
    "Jet": ("jet.job-04b5-1234-0000-0001.orders.sink.2-1", {}, "Hazelcast Jet", "orders.sink", SURE),
    "Materialize": ("materialize-eu-west-1-u12-u40", {}, "Materialize", "eu-west-1-u12-u40", SURE),
    "hostile markup": ("<script>alert(1)</script>-1-2", {}, "Flink", "<script>alert(1)</script>", GUESS),
    "a newline": ("a\nb-1-2", {}, "Flink", "a\nb", GUESS),
}


@pytest.mark.parametrize(("name", "known", "framework", "application", "certainty"), REAL.values(), ids=REAL.keys())
def test_the_id_of_a_real_client_is_taken_apart(
    name: str, known: dict[str, set[str]], framework: str, application: str, certainty: Certainty
) -> None:
    found = of(name, **known)  # type: ignore[arg-type]
    assert found is not None
    assert (found.framework, found.name, found.certainty) == (framework, application, certainty)


@pytest.mark.parametrize("name", ["", "-", "x", "7", "refunds", "payments-", "..", "/", "1_2_3x", UUID, f"{UUID}-x"])
def test_what_fits_no_form_stays_whole(name: str) -> None:
    assert of(name) is None


@pytest.mark.parametrize("shape", SHAPES, ids=[f"{shape.framework}: {shape.form}" for shape in SHAPES])
def test_the_example_of_a_form_fits_it(shape: IdShape) -> None:
    found = of(shape.example)
    assert found is not None
    assert shape.framework in (found.framework, *found.also)
    assert (found.certainty is SURE) == (shape.rule is Rule.ALWAYS)


def test_a_guess_names_the_others_and_is_said_to_be_one() -> None:
    found = of("orders-4-1187")
    assert found is not None
    assert found.also == ("Faust", "Kafka Connect source task", "Spring Kafka")
    assert found.text == (
        "looks like Flink (or like Faust, Kafka Connect source task, Spring Kafka): prefix orders, subtask 4, "
        "number 1187; this is a guess"
    )


def test_a_certain_one_has_its_reason_and_no_others() -> None:
    found = of("ledger-0_11", groups={"ledger"})
    assert found is not None
    assert found.also == ()
    assert found.rule == (
        "<application.id>-<subtopology>_<partition>: a consumer group has the name of the application"
    )
    assert found.text == "Kafka Streams: application.id ledger, subtopology 0, partition 11"


def with_a_number_as_its_name(shape: IdShape) -> str:
    values = {"uuid": UUID, "hex": "0af3" * 8, "hash": "2893412567", "number": "3", "pair": "a-b"}
    return _PART.sub(lambda one: "4711" if one[1] == shape.name else values.get(one[2] or "", "x"), shape.form)


@pytest.mark.parametrize("shape", SHAPES, ids=[f"{shape.framework}: {shape.form}" for shape in SHAPES])
def test_a_number_behind_other_text_is_no_name_of_an_application(shape: IdShape) -> None:
    """The framework has made it: an entry for a number would own what others have of the same framework."""
    made = with_a_number_as_its_name(shape)
    found = of(made)
    if found is not None and not made.startswith("4711"):
        assert not found.name.isdecimal()
        assert made.startswith(found.name), "the beginning of the id, so an entry for it can be found"


def _composed(form: str, values: dict[str, str]) -> str:
    return _PART.sub(lambda one: values[one[1]], form)


_VALUES = {
    "number": st.integers(0, 10**18).map(str),
    "hash": st.integers(10_000, (1 << 32) - 1).map(str),
    "uuid": st.uuids().map(str),
    "hex": st.uuids().map(lambda one: one.hex),
    "4 digits": st.from_regex("[0-9]{4}", fullmatch=True),
    "pair": st.tuples(*[st.from_regex("[a-z.]{1,8}", fullmatch=True)] * 2).map("-".join),
    None: st.text(st.characters(codec="utf-8", exclude_characters="0123456789-._q"), min_size=1, max_size=20),
}


@st.composite
def an_id(draw: st.DrawFn) -> tuple[IdShape, dict[str, str]]:
    shape = draw(st.sampled_from(SHAPES))
    return shape, {one[1]: draw(_VALUES[one[2]]) for one in _PART.finditer(shape.form)}


@given(an_id())
def test_an_id_that_is_composed_is_taken_apart_into_the_same_parts(made: tuple[IdShape, dict[str, str]]) -> None:
    shape, values = made
    found = of(_composed(shape.form, values), groups={values[shape.name]})
    assert found is not None
    if found.framework == shape.framework and found.rule.startswith(_PART.sub(r"<\1>", shape.form)):
        assert parts_of(found) == values
    else:
        assert found.certainty is SURE or shape.rule is not Rule.ALWAYS


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[a-z0-9_.-]{1,12}(-[0-9]{1,4}){0,3}", fullmatch=True)))
def test_the_parts_of_any_text_put_together_again_are_the_text(name: str) -> None:
    found = of(name)
    if found is not None:
        form = found.rule.partition(": ")[0]
        assert re.sub("<([^<>]+)>", lambda one: parts_of(found)[one[1]], form) == name
        assert found.name


HOSTILE = {
    "numbers": "-1" * 16_000,
    "digits": "1" * 32_767,
    "separators": "-mm2-" * 6_500,
    "queries": "_confluent-ksql-" + "query_" * 5_400,
    "dots": "jet.job-" + "." * 32_000,
    "hexadecimal": "a-" + "0af3" * 8_190,
    "newlines": "\n" * 32_767,
    "dotted numbers": "a.b.1" * 6_500,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_time_is_linear_for_any_text(text: str) -> None:
    """Each pattern is tried on the whole text, although longer ids than LONGEST are not taken apart at all."""
    begun_s = time.process_time()
    for _, _, pattern in PATTERNS:
        pattern.fullmatch(text)
    assert time.process_time() - begun_s < 2.0  # 0.03 s; a quadratic pattern takes a minute


def test_an_id_that_no_framework_makes_is_not_taken_apart() -> None:
    assert of("a" * (LONGEST - 4) + "-1-2") is not None
    assert of("a" * (LONGEST - 3) + "-1-2") is None


def test_every_kind_of_a_form_exists_and_every_name_is_a_part() -> None:
    for shape in SHAPES:
        parts = {one[1]: one[2] for one in _PART.finditer(shape.form)}
        assert shape.name in parts
        assert {kind for kind in parts.values() if kind is not None} <= KINDS.keys()
        assert parts[shape.name] in {None, "pair", "4 digits"}, "a number or a uuid is no name of an application"
