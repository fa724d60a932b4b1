"""Java client properties into what a connection needs, and advice for what Python cannot read."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.client.security import Security, security_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
TRUSTSTORE = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem"}
KEYSTORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/etc/me.pem", "ssl.key.password": "secret"}


def pem(kind: str, body: str) -> str:
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"


# Self-signed, valid to 2126, made for this file; the key is encrypted with the password `secret`.
CERTIFICATE = pem(
    "CERTIFICATE",
    """MIIBjTCCATOgAwIBAgIUN0vON7zHsVkUQsC7eKRi8SzTSaEwCgYIKoZIzj0EAwIw
GzEZMBcGA1UEAwwQdHhud2F0Y2ggdGVzdCBDQTAgFw0yNjExMjEwMzQ4NTNaGA8y
MTI2MTAyODAzNDg1M1owGzEZMBcGA1UEAwwQdHhud2F0Y2ggdGVzdCBDQTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABCJUTzZYGpuYgWxI1BPE6BTXxs4EVFDMlmnx
TqS+qiATHca3eiU3Z6kDwKZEJE/0Lbo4uAtUr7q7pS7vYuTMNa2jUzBRMB0GA1Ud
DgQWBBQBWJatQJbZ+1mmtuCXZ/IGDEIszzAfBgNVHSMEGDAWgBQBWJatQJbZ+1mm
tuCXZ/IGDEIszzAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCICWD
uSAqVt19xs6YiTK/GQuDvZ76pXYefcu9FDc7HdiVAiEA9eio5qqRVznkFiWGzxbb
SlejDHDm15Sy2x3LCDZNnVg=""",
)
KEY = pem(
    "ENCRYPTED PRIVATE KEY",
    """MIHrMFYGCSqGSIb3DQEFDTBJMCgGCSqGSIb3DQEFDDAbBAhides692UqxwIBZDAM
BggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQp098aYAa2IZd16bHrhjYngSBkBln
VEH49FseVQ9Y+ZVVe0nP4Nb1ag1qW52feMA2ft2jk+82PYMT3QNdDb0aLi/L4QT9
vY/0/L/uyb2ul01cLUbTdRlwk1JZVMnYJ5MrB/A77bo9nqNGt483dOMituTCD05g
jbxTz/Gi8wFE7oGOVjBBKx5GWxKIBo1zJNuVQ3jtJEEdHVJYkxKE9unIc1cWTw==""",
)

UNDERSTOOD: dict[str, tuple[dict[str, str], Security]] = {
    "nothing at all": ({}, Security()),
    "what is no security": ({"client.id": "me", "acks": "all"}, Security()),
    "TLS by the system's authorities": ({"security.protocol": "SSL"}, Security("SSL")),
    "a protocol in small letters": ({"security.protocol": "ssl"}, Security("SSL")),
    "TLS by our authority": ({"security.protocol": "SSL", **TRUSTSTORE}, Security("SSL", ca_file="/etc/ca.pem")),
    "an authority written inline": (
        {"security.protocol": "SSL", "ssl.truststore.certificates": CERTIFICATE},
        Security("SSL", ca_text=CERTIFICATE),
    ),
    "a client certificate": (
        {"security.protocol": "SSL", **KEYSTORE},
        Security("SSL", certificate_file="/etc/me.pem", key_password="secret"),
    ),
    "host names not to be verified": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
        Security("SSL", verify_host=False),
    ),
    "host names to be verified by name": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "HTTPS"},
        Security("SSL"),
    ),
    "SASL over TLS": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "scram-sha-512",
            "sasl.username": "me",
            "sasl.password": "pw",
            **TRUSTSTORE,
        },
        Security("SASL_SSL", ca_file="/etc/ca.pem", mechanism="SCRAM-SHA-512", username="me", password="pw"),
    ),
    "SASL properties without SASL": ({"sasl.mechanism": "GSSAPI"}, Security()),
}


@pytest.mark.parametrize(("properties", "security"), UNDERSTOOD.values(), ids=UNDERSTOOD.keys())
def test_properties_are_understood(properties: dict[str, str], security: Security) -> None:
    assert security_of(properties) == security


LOGINS = {
    "double quotes": (f'{PLAIN} username="me" password="pw";', "me", "pw"),
    "single quotes": (f"{PLAIN} username='me' password='pw';", "me", "pw"),
    "no quotes": (f"{PLAIN} username=me password=pw;", "me", "pw"),
    "spaces and lines": (f'{PLAIN}\n  username = "me"\n  password = "pw" ;', "me", "pw"),
    "other order, other options": (f'{PLAIN} serviceName="k" password="pw" username="me";', "me", "pw"),
    "what looks like options": (f'{PLAIN} username="me" password="username=\'x\'; a=b";', "me", "username='x'; a=b"),
    "an escaped quote": (rf'{PLAIN} username="me" password="a\"b";', "me", 'a"b'),
    "an escaped backslash": (rf'{PLAIN} username="dom\\me" password="pw";', r"dom\me", "pw"),
    "an empty password": (f'{PLAIN} username="me" password="";', "me", ""),
}


@pytest.mark.parametrize(("jaas", "username", "password"), LOGINS.values(), ids=LOGINS.keys())
def test_a_login_is_read_from_the_jaas_line(jaas: str, username: str, password: str) -> None:
    found = security_of({**SASL, "sasl.jaas.config": jaas})
    assert (found.mechanism, found.username, found.password) == ("PLAIN", username, password)


REFUSED = {
    "an unknown protocol": (
        {"security.protocol": "TLS"},
        "security.protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, found 'TLS'",
    ),
    "a mechanism of Java alone": (
        {**SASL, "sasl.mechanism": "OAUTHBEARER"},
        "sasl.mechanism: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, found 'OAUTHBEARER'",
    ),
    "Kafka's default mechanism": ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: .* found 'GSSAPI'"),
    "no login": (SASL, "sasl.jaas.config: expected a login module with username=.* and password="),
    "no password": ({**SASL, "sasl.jaas.config": f'{PLAIN} username="me";'}, "sasl.jaas.config: expected"),
    "an empty user": ({**SASL, "sasl.jaas.config": f'{PLAIN} username="" password="x";'}, "sasl.jaas.config: expected"),
    "a Java truststore": (
        {"security.protocol": "SSL", "ssl.truststore.location": "/etc/ca.jks"},
        "ssl.truststore.type: expected PEM, found JKS for /etc/ca.jks. Export .* set ssl.truststore.type=PEM",
    ),
    "a PKCS12 keystore": (
        {"security.protocol": "SSL", **KEYSTORE, "ssl.keystore.type": "pkcs12"},
        "ssl.keystore.type: expected PEM, found PKCS12",
    ),
}


@pytest.mark.parametrize(("properties", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_refused_with_advice(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        security_of(properties)


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [("PLAINTEXT", False, False), ("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_protocol_is_with_or_without_tls_and_sasl(*, protocol: str, tls: bool, sasl: bool) -> None:
    security = Security(protocol)
    assert (security.uses_tls, security.uses_sasl) == (tls, sasl)


def test_security_travels_to_tasks_and_keys_the_cache_of_connections() -> None:
    security = security_of({**SASL, "sasl.username": "me", "sasl.password": "pw"})
    copied = pickle.loads(pickle.dumps(security))
    assert {security: "connection"}[copied] == "connection"


def test_secrets_stay_out_of_messages() -> None:
    shown = repr(Security("SASL_SSL", key_password="hush-1", username="me", password="hush-2"))
    assert "username='me'" in shown
    assert "hush" not in shown


@pytest.fixture
def certificate_file(tmp_path: Path) -> str:
    path = tmp_path / "me.pem"
    path.write_text(KEY + CERTIFICATE)
    return str(path)


def subjects(context: ssl.SSLContext) -> list[object]:
    return [found["subject"] for found in context.get_ca_certs()]


OUR_AUTHORITY = [((("commonName", "txnwatch test CA"),),)]


def test_given_authorities_are_the_only_ones_trusted(certificate_file: str) -> None:
    assert subjects(Security("SSL", ca_file=certificate_file).tls_context()) == OUR_AUTHORITY
    assert subjects(Security("SSL", ca_text=CERTIFICATE).tls_context()) == OUR_AUTHORITY


@pytest.mark.parametrize("verify_host", [True, False])
def test_the_certificate_is_verified_even_where_its_host_name_is_not(*, verify_host: bool) -> None:
    context = Security("SSL", ca_text=CERTIFICATE, verify_host=verify_host).tls_context()
    assert context.check_hostname is verify_host
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_client_certificate_is_opened_with_its_password(certificate_file: str) -> None:
    security = Security("SSL", ca_text=CERTIFICATE, certificate_file=certificate_file, key_password="secret")
    assert subjects(security.tls_context()) == OUR_AUTHORITY


@pytest.mark.parametrize("key_password", [None, "wrong"])
def test_a_key_that_does_not_open_is_an_error_that_names_the_file(
    certificate_file: str, key_password: str | None
) -> None:
    security = Security("SSL", ca_text=CERTIFICATE, certificate_file=certificate_file, key_password=key_password)
    with pytest.raises(ConfigError, match=f"^TLS set-up: expected PEM certificates in {certificate_file}, found: "):
        security.tls_context()


def test_a_missing_key_password_is_no_question_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords: list[str | None] = []

    def load(_context: ssl.SSLContext, _file: str, *, password: str | None = None) -> None:
        passwords.append(password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    Security("SSL", ca_text=CERTIFICATE, certificate_file="/me.pem").tls_context()
    assert passwords == [""], "None is what makes OpenSSL ask"


@pytest.mark.parametrize(
    ("security", "named"),
    [
        pytest.param(Security("SSL", ca_file="/absent/ca.pem"), "/absent/ca.pem", id="no such truststore"),
        pytest.param(
            Security("SSL", ca_file="/absent/ca.pem", certificate_file="/me.pem"),
            "/absent/ca.pem and /me.pem",
            id="one of the two files",
        ),
        pytest.param(Security("SSL", ca_text="no PEM"), "inline certificates", id="inline and no PEM"),
    ],
)
def test_files_that_may_be_at_fault_are_named(security: Security, named: str) -> None:
    with pytest.raises(ConfigError, match=f"^TLS set-up: expected PEM certificates in {named}, found: "):
        security.tls_context()
