"""The source's options: Spark's spelling, and no option that silently means its default."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ports import UNKNOWN_PARTITION
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, CoordinatorAccess, TopicPartition
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.client.notations import Endpoint, parse_bootstrap
from txnwatch.streaming.client.security import PasswordLogin, Security
from txnwatch.streaming.source.options import KNOWN, SourceOptions, parse_options, spark_hash, state_keys

LEAST = {"kafka.bootstrap.servers": "kafka:9092", "subscribe": "orders"}
ORDERS_0 = TopicPartition("orders", 0)


def test_an_option_that_is_not_given_has_its_default() -> None:
    assert parse_options(LEAST) == SourceOptions(
        bootstrap=(Endpoint("kafka", 9092),),
        security=Security(),
        rack=None,
        topics=("orders",),
        pattern=None,
        starting_offsets="latest",
        ending_offsets="latest",
        max_offsets_per_trigger=None,
        max_bytes_per_second=None,
        first_pattern=None,
        max_read_s=None,
        buckets=16,
        state_partitions=1,
        input_partitions=2,
        metadata_refresh_s=5.0,
        list_timeout_s=1.5,
        read_patience_s=5.0,
        census_pattern=None,
        foreign_pattern=None,
        census_interval_s=5.0,
        heal_interval_s=60.0,
        coordinator_access=CoordinatorAccess.LOG,
        driver_file=None,
        packed=False,
        episodes=False,
    )


def test_spark_distributes_numbers_by_this_hash() -> None:
    """As `SELECT hash(0), hash(1)` answers; test_source.py asks for more of them."""
    assert [spark_hash(key) for key in (0, 1)] == [933211791, -559580957]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16, 17, 64])
def test_each_partition_of_the_state_gets_as_many_buckets(partitions: int) -> None:
    options = parse_options({**LEAST, "statePartitions": str(partitions)})
    keys = options.state_keys
    assert len(keys) == len(set(keys)) == options.buckets == max(16, partitions)
    assert keys[0] == 0, "the bucket that reports on partitions"
    counts = Counter(spark_hash(key) % partitions for key in keys)
    assert len(counts) == partitions
    assert max(counts.values()) - min(counts.values()) <= 1
    assert state_keys(16, 1) == tuple(range(16))


OPTION_CASES: dict[str, tuple[str, str, str, object]] = {
    "several topics": ("subscribe", " orders, payments ,", "topics", ("orders", "payments")),
    "starting at the end": ("startingOffsets", "latest", "starting_offsets", "latest"),
    "starting at the beginning": ("startingOffsets", "EARLIEST", "starting_offsets", "earliest"),
    "starting at offsets": (
        "startingOffsets",
        '{"orders": {"0": 5, "1": 0}, "a-b": {"2": 7}}',
        "starting_offsets",
        {ORDERS_0: 5, TopicPartition("orders", 1): 0, TopicPartition("a-b", 2): 7},
    ),
    "ending at the end": ("endingOffsets", "Latest", "ending_offsets", "latest"),
    "ending at offsets": ("endingOffsets", '{"orders": {"0": 9}}', "ending_offsets", {ORDERS_0: 9}),
    "a limit": ("maxOffsetsPerTrigger", "1000", "max_offsets_per_trigger", 1000),
    "a rate of bytes": ("maxBytesPerSecond", "4096", "max_bytes_per_second", 4096),
    "topics to scan first": ("firstPattern", "orders|pay.*", "first_pattern", "orders|pay.*"),
    "a limit of milliseconds": ("maxReadMsPerTrigger", "500", "max_read_s", 0.5),
    "buckets": ("buckets", "8", "buckets", 8),
    "partitions of the state": ("statePartitions", "4", "state_partitions", 4),
    "input partitions": ("inputPartitions", "4", "input_partitions", 4),
    "milliseconds of metadata": ("metadataRefreshMs", "250", "metadata_refresh_s", 0.25),
    "milliseconds of listing": ("listTimeoutMs", "2500", "list_timeout_s", 2.5),
    "milliseconds of patience": ("readPatienceMs", "1", "read_patience_s", 0.001),
    "topics watched by census": ("censusPattern", "__.*", "census_pattern", "__.*"),
    "topics of another cluster": ("foreignPattern", "copy-.*", "foreign_pattern", "copy-.*"),
    "milliseconds between rounds": ("censusIntervalMs", "1500", "census_interval_s", 1.5),
    "milliseconds between healings": ("healIntervalMs", "90000", "heal_interval_s", 90),
    "a view": ("coordinatorView", "api", "coordinator_access", CoordinatorAccess.API),
    "a file of the driver": ("driverFile", "/tmp/Driver", "driver_file", "/tmp/Driver"),
    "packed": ("packed", "true", "packed", True),
    "episodes": ("episodes", "True", "episodes", True),
    "no episodes": ("episodes", "false", "episodes", False),
    "several brokers": (
        "kafka.bootstrap.servers",
        "a:1, [::1]:2,",
        "bootstrap",
        (Endpoint("a", 1), Endpoint("::1", 2)),
    ),
}


@pytest.mark.parametrize(("option", "text", "name", "value"), OPTION_CASES.values(), ids=OPTION_CASES.keys())
@pytest.mark.parametrize("spelling", [str, str.lower, str.upper], ids=["as documented", "lower", "upper"])
def test_an_option_is_read_however_spark_spells_its_name(
    spelling: Callable[[str], str], option: str, text: str, name: str, value: object
) -> None:
    given = {spelling(key): content for key, content in {**LEAST, option: text}.items()}
    assert getattr(parse_options(given), name) == value


def test_every_known_option_but_the_pattern_is_tried_above() -> None:
    assert {option.lower() for option, *_ in OPTION_CASES.values()} == KNOWN.keys() - {"subscribepattern"}


LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerSecond", "maxReadMsPerTrigger")
NUMBERS = (*LIMITS, "buckets", "inputPartitions", "metadataRefreshMs", "listTimeoutMs", "readPatienceMs")
BAD = {
    **{f"{name} {text or 'empty'}": (name, text) for name in NUMBERS for text in ("0", "-1", "1.5", "many", "")},
    "episodes maybe": ("episodes", "1"),
    "packed maybe": ("packed", "1"),
    "starting at an unknown name": ("startingOffsets", "newest"),
    "starting at half a JSON": ("startingOffsets", '{"orders": {"0": 5'),
    "starting at a list": ("startingOffsets", '["orders"]'),
    "starting at no partition": ("startingOffsets", '{"orders": 5}'),
    "starting at a partition that is no number": ("startingOffsets", '{"orders": {"first": 5}}'),
    "starting at no offset": ("startingOffsets", '{"orders": {"0": null}}'),
    "starting at Spark's number for the end": ("startingOffsets", '{"orders": {"0": -1}}'),
    "starting at Spark's number for the beginning": ("startingOffsets", '{"orders": {"0": -2}}'),
    "ending where nothing is": ("endingOffsets", "earliest"),
    "ending at an unknown name": ("endingOffsets", "newest"),
}


@pytest.mark.parametrize(("option", "text"), BAD.values(), ids=BAD.keys())
def test_a_bad_value_names_the_option_the_expectation_and_the_value(option: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**LEAST, option: text})
    assert str(caught.value).startswith(f"option {option.lower()}: expected {KNOWN[option.lower()]}, found {text!r} (")


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"option subscribepattern: expected regular expression .* found 'orders\('"):
        parse_options({"kafka.bootstrap.servers": "kafka:9092", "subscribePattern": "orders("})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"startingOffset": "latest"}, "option 'startingoffset' is not known .*startingoffsets", id="typo"),
        pytest.param({"subscribe": ""}, "expected one of subscribe and subscribePattern, found neither", id="no topic"),
        pytest.param({"subscribe": " , "}, "expected one of subscribe .* found neither", id="blank topics"),
        pytest.param({"subscribePattern": ".*"}, "expected one of subscribe .* found both", id="topics and pattern"),
        pytest.param({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: expected host:port of", id="no broker"),
        pytest.param({"kafka.bootstrap.servers": "kafka"}, "kafka.bootstrap.servers: expected host:port", id="no port"),
        pytest.param({"kafka.security.protocol": "TLS"}, "security.protocol: expected one of", id="security"),
    ],
)
def test_options_that_do_not_fit_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        parse_options({**LEAST, **change})


def test_brokers_have_to_be_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers: expected host:port of at least one broker"):
        parse_options({"subscribe": "orders"})


def test_kafka_options_are_client_properties() -> None:
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "KAFKA.SASL.JAAS.CONFIG": 'ScramLoginModule required username="Me" password="Pw";',
        "kafka.client.id": "ignored",
    }
    assert parse_options({**LEAST, **given}).security == Security(
        "SASL_PLAINTEXT", login=PasswordLogin("SCRAM-SHA-256", "Me", "Pw")
    )


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("kafka:1", (Endpoint("kafka", 1),)),
        (" a:1 ,, b:65535 ", (Endpoint("a", 1), Endpoint("b", 65535))),
        ("[2001:db8::1]:9092", (Endpoint("2001:db8::1", 9092),)),
    ],
)
def test_a_list_of_brokers_is_read(text: str, endpoints: tuple[Endpoint, ...]) -> None:
    assert parse_bootstrap(text, "--bootstrap-server") == endpoints


@pytest.mark.parametrize("text", ["", ",", "kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:-1", "a:1,b"])
def test_a_list_that_names_no_brokers_is_refused_under_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--bootstrap-server: expected host:port"):
        parse_bootstrap(text, "--bootstrap-server")


@pytest.mark.parametrize(
    ("selection", "topic", "watched"),
    [
        pytest.param({"subscribe": "orders,payments"}, "payments", True, id="named"),
        pytest.param({"subscribe": "orders"}, "orders-dlq", False, id="named in part"),
        pytest.param({"subscribePattern": "orders.*"}, "orders-dlq", True, id="matched"),
        pytest.param({"subscribePattern": "orders"}, "orders-dlq", False, id="matched in part"),
        pytest.param({"subscribePattern": ".*"}, "__consumer_offsets", True, id="offsets take part in transactions"),
        pytest.param({"subscribePattern": ".*"}, TRANSACTION_STATE_TOPIC, False, id="the log, matched"),
        pytest.param({"subscribe": TRANSACTION_STATE_TOPIC}, TRANSACTION_STATE_TOPIC, False, id="the log, named"),
    ],
)
def test_topics_are_watched_by_name_or_by_whole_match(*, selection: dict[str, str], topic: str, watched: bool) -> None:
    options = parse_options({"kafka.bootstrap.servers": "kafka:9092", **selection})
    assert options.watches(TopicInfo(topic, "id", partitions={})) is watched


def test_a_topic_that_metadata_has_an_error_for_is_not_watched_now() -> None:
    failing = TopicInfo("orders", "id", partitions={}, error=UNKNOWN_PARTITION)
    assert not parse_options(LEAST).watches(failing)


def test_options_travel_to_tasks() -> None:
    options = parse_options({**LEAST, "startingOffsets": '{"orders": {"0": 5}}', "kafka.security.protocol": "SSL"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_sources_that_choose_the_same_topics_have_the_same_digest() -> None:
    def digest(**changes: str) -> str:
        brokers = {"kafka.bootstrap.servers": LEAST["kafka.bootstrap.servers"]}
        return parse_options({**brokers, **changes}).topics_digest

    a_and_b = {"subscribe": "a,b"}
    assert digest(**a_and_b) == digest(subscribe="b,a", maxoffsetspertrigger="7")
    others = ({"subscribe": "a"}, {"subscribepattern": "a"}, {"subscribepattern": "a", "foreignpattern": "b"})
    chosen = (a_and_b, {**a_and_b, "censuspattern": "b"}, {**a_and_b, "foreignpattern": "b"}, *others)
    assert len({digest(**one) for one in chosen}) == len(chosen)


def test_a_misspelt_option_of_kafka_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"found 'secrity\.protocol'; did you mean security\.protocol\?"):
        parse_options({**LEAST, "kafka.secrity.protocol": "SSL"})
