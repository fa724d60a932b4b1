"""The variables that Kubernetes sets in a pod for each Service of its namespace, beside those of txnwatch."""

from __future__ import annotations

import pytest

from support.bad_inputs import BadInputs
from txnwatch.config import RunSettings
from txnwatch.setting_sources import load_settings
from txnwatch.state.model.errors import ConfigError

# What the kubelet sets for the Services txnwatch and txnwatch-redis.
SERVICE_LINKS = {
    "TXNWATCH_SERVICE_HOST": "10.0.0.7",
    "TXNWATCH_SERVICE_PORT": "9464",
    "TXNWATCH_SERVICE_PORT_METRICS": "9464",
    "TXNWATCH_PORT": "tcp://10.0.0.7:9464",
    "TXNWATCH_PORT_9464_TCP": "tcp://10.0.0.7:9464",
    "TXNWATCH_PORT_9464_TCP_PROTO": "tcp",
    "TXNWATCH_PORT_9464_TCP_PORT": "9464",
    "TXNWATCH_PORT_9464_TCP_ADDR": "10.0.0.7",
    "TXNWATCH_REDIS_SERVICE_HOST": "10.0.0.9",
}
LINK = {"TXNWATCH_HTTP_PORT": "tcp://10.0.0.8:9464"}  # for the Service txnwatch-http


def settings(environ: dict[str, str], **flags: str) -> RunSettings:
    return load_settings({"bootstrap_server": "kafka:9092", **flags}, None, environ)


def test_service_links_are_no_settings() -> None:
    assert settings(SERVICE_LINKS) == settings({})
    assert settings({**SERVICE_LINKS, "TXNWATCH_HTTP_PORT": "9464"}).http_port == 9464


def test_a_link_of_kubernetes_with_the_name_of_a_setting(bad_inputs: BadInputs) -> None:
    """The error has what to do."""
    with pytest.raises(ConfigError) as raised:
        settings({**SERVICE_LINKS, **LINK})
    assert str(raised.value) == (
        "http_port: expected a valid integer, unable to parse string as an integer, found 'tcp://10.0.0.8:9464' "
        "from environment (Kubernetes sets TXNWATCH_HTTP_PORT for a Service named txnwatch-http): "
        "set enableServiceLinks: false in the pod, or rename the Service"
    )
    bad_inputs.keep("Settings", raised.value)


def test_a_flag_replaces_a_link_with_the_name_of_a_setting() -> None:
    assert settings(LINK, http_port="9464").http_port == 9464


@pytest.mark.parametrize("flags", [{}, {"http_port": "tcp://10.0.0.8:9464"}], ids=["a word", "a URL from a flag"])
def test_other_errors_about_the_port_do_not_name_kubernetes(flags: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^http_port: expected .* from (environment|flag)$"):
        settings({"TXNWATCH_HTTP_PORT": "soon"}, **flags)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("SERVICE", "10.0.0.7", "service: unknown key, from environment"),
        ("METRIC_PORT", "9464", "metric_port: unknown key, from environment"),
        ("PORT", "9464", "port: unknown key, from environment"),
        ("REDIS_URL", "tcp://r:6379", r"redis_url: expected .* from environment$"),
    ],
)
def test_a_variable_that_only_looks_like_a_link_is_an_error(name: str, value: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        settings({f"TXNWATCH_{name}": value})
