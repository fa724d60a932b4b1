"""What doctor shows of the machine it runs on."""

from __future__ import annotations

from dataclasses import astuple

from txnwatch.cli.doctor import check_events_client, check_redis
from txnwatch.cli.doctor_rows import Health
from txnwatch.streaming.source.options import SourceOptions, parse_options


def options(**properties: str) -> SourceOptions:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in properties.items()}
    return parse_options({**given, "kafka.bootstrap.servers": "127.0.0.1:1", "subscribePattern": ".*"})


def test_a_connection_that_confluent_kafka_can_use_is_ok() -> None:
    row = check_events_client(options())
    assert (row.subject, row.status, row.needed_by, row.fix) == ("confluent-kafka", Health.OK, "run", None)


def test_gssapi_with_a_confluent_kafka_without_it_is_missing() -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}
    row = check_events_client(options(**login))
    assert (row.subject, row.status, row.needed_by) == ("confluent-kafka", Health.MISSING, "run")
    assert "expected a confluent-kafka that is built with GSSAPI" in row.detail
    assert row.fix == "build confluent-kafka from source, with GSSAPI"


def test_the_password_of_a_redis_url_is_not_shown() -> None:
    row = check_redis("redis://watch:secret@127.0.0.1:1/0")
    assert row.status is Health.MISSING
    assert row.subject == "redis://***@127.0.0.1:1/0"
    assert "secret" not in str(astuple(row))


def test_the_password_in_the_query_of_a_redis_url_is_not_shown() -> None:
    row = check_redis("redis://127.0.0.1:1/0?password=kanarienvogel")
    assert row.subject == "redis://127.0.0.1:1/0?***"
    assert "kanarienvogel" not in str(astuple(row))
