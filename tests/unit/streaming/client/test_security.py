"""Java client properties into what a connection needs, and a TLS context from it."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest

from support.bad_inputs import BadInputs
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.streaming.client.security import PasswordLogin, Security, security_of
from txnwatch.streaming.client.tls import Store, Tls

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

TRUST = Store("ssl.truststore", "PEM", "/etc/ca.pem")


def inline(certificates: str) -> Store:
    return Store("ssl.truststore", "PEM", certificates=certificates)


def in_file(path: str, key_password: str | None = None) -> Store:
    return Store("ssl.keystore", "PEM", path, key_password=key_password)


UNDERSTOOD: dict[str, tuple[dict[str, str], Security]] = {
    "nothing at all": ({}, Security()),
    "what is no security": ({"client.id": "me", "acks": "all"}, Security()),
    "TLS by the system's authorities": ({"security.protocol": "SSL"}, Security("SSL")),
    "a protocol in small letters": ({"security.protocol": "ssl"}, Security("SSL")),
    "TLS by our authority": ({"security.protocol": "SSL", **TRUSTSTORE}, Security("SSL", Tls(TRUST))),
    "an authority written inline": (
        {"security.protocol": "SSL", "ssl.truststore.certificates": CERTIFICATE},
        Security("SSL", Tls(inline(CERTIFICATE))),
    ),
    "a client certificate": (
        {"security.protocol": "SSL", **KEYSTORE},
        Security("SSL", Tls(keys=in_file("/etc/me.pem", "secret"))),
    ),
    "host names not to be verified": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
        Security("SSL", Tls(verify_host=False)),
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
        Security("SASL_SSL", Tls(TRUST), PasswordLogin("SCRAM-SHA-512", "me", "pw")),
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
    assert security_of({**SASL, "sasl.jaas.config": jaas}).login == PasswordLogin("PLAIN", username, password)


REFUSED = {
    "an unknown protocol": (
        {"security.protocol": "TLS"},
        "security.protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, found 'TLS'",
    ),
    "an unknown mechanism": (
        {**SASL, "sasl.mechanism": "ANONYMOUS"},
        "sasl.mechanism: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM, found "
        "'ANONYMOUS'",
    ),
    "Kafka's default mechanism": ({"security.protocol": "SASL_SSL"}, "sasl.kerberos.service.name: .* for GSSAPI"),
    "no login": (SASL, "sasl.jaas.config: expected a login module with username=.* and password="),
    "no password": ({**SASL, "sasl.jaas.config": f'{PLAIN} username="me";'}, "sasl.jaas.config: expected"),
    "an empty user": ({**SASL, "sasl.jaas.config": f'{PLAIN} username="" password="x";'}, "sasl.jaas.config: expected"),
    "an unknown kind of store": (
        {"security.protocol": "SSL", **KEYSTORE, "ssl.keystore.type": "BCFKS"},
        "ssl.keystore.type: expected one of PEM, JKS, PKCS12, found 'BCFKS'",
    ),
    "inline text that is no PEM": (
        {"security.protocol": "SSL", "ssl.truststore.certificates": CERTIFICATE, "ssl.truststore.type": "JKS"},
        "ssl.truststore.type: expected PEM for inline text, found JKS",
    ),
    "a file and inline text": (
        {"security.protocol": "SSL", "ssl.truststore.certificates": CERTIFICATE, **TRUSTSTORE},
        "ssl.truststore.location: expected either a file or inline text, found both",
    ),
    "a chain without a key": (
        {"security.protocol": "SSL", "ssl.keystore.certificate.chain": CERTIFICATE},
        "ssl.keystore.certificate.chain: expected ssl.keystore.key as well",
    ),
    "a key without a chain": (
        {"security.protocol": "SSL", "ssl.keystore.key": KEY},
        "ssl.keystore.key: expected ssl.keystore.certificate.chain as well",
    ),
}


@pytest.mark.parametrize(("properties", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_an_unusable_setting_is_refused_with_advice(
    properties: dict[str, str], message: str, bad_inputs: BadInputs
) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        security_of(properties)
    bad_inputs.keep("Client properties", raised.value)


@pytest.mark.parametrize(
    ("protocol", "tls"), [("PLAINTEXT", False), ("SSL", True), ("SASL_PLAINTEXT", False), ("SASL_SSL", True)]
)
def test_a_protocol_is_with_or_without_tls(*, protocol: str, tls: bool) -> None:
    assert Security(protocol).uses_tls is tls


def test_security_travels_to_tasks_and_keys_the_cache_of_connections() -> None:
    security = security_of({**SASL, "sasl.username": "me", "sasl.password": "pw"})
    copied = pickle.loads(pickle.dumps(security))
    assert {security: "connection"}[copied] == "connection"


def test_secrets_stay_out_of_messages() -> None:
    keys = Store("ssl.keystore", "PEM", password="hush-1", key="hush-2", key_password="hush-3")
    shown = repr(Security("SASL_SSL", Tls(keys=keys), PasswordLogin("PLAIN", "me", "hush-4")))
    assert "user='me'" in shown
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
    in_a_file = Store("ssl.truststore", "PEM", certificate_file)
    assert subjects(Tls(in_a_file).context()) == OUR_AUTHORITY
    assert subjects(Tls(inline(CERTIFICATE)).context()) == OUR_AUTHORITY


def test_inline_text_may_have_lost_its_line_breaks() -> None:
    in_one_line = " ".join(CERTIFICATE.split("\n"))
    assert subjects(Tls(inline(in_one_line)).context()) == OUR_AUTHORITY


@pytest.mark.parametrize("verify_host", [True, False])
def test_the_certificate_is_verified_even_where_its_host_name_is_not(*, verify_host: bool) -> None:
    context = Tls(inline(CERTIFICATE), verify_host=verify_host).context()
    assert context.check_hostname is verify_host
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("given", ["file", "inline"])
def test_a_client_certificate_is_opened_with_its_password(certificate_file: str, given: str) -> None:
    inline_keys = Store("ssl.keystore", "PEM", certificates=CERTIFICATE, key=KEY, key_password="secret")
    keys = in_file(certificate_file, "secret") if given == "file" else inline_keys
    assert subjects(Tls(inline(CERTIFICATE), keys).context()) == OUR_AUTHORITY


@pytest.mark.parametrize(
    ("key_password", "problem"),
    [
        (None, "an encrypted private key and no ssl.key.password"),
        ("wrong", "a private key that ssl.key.password does not open"),
    ],
    ids=["an encrypted key without a password", "a wrong password of a key"],
)
def test_a_key_that_does_not_open_is_an_error_that_names_the_file(
    certificate_file: str, key_password: str | None, problem: str, bad_inputs: BadInputs
) -> None:
    tls = Tls(inline(CERTIFICATE), in_file(certificate_file, key_password))
    with pytest.raises(
        ConfigError, match=f"^ssl.keystore: expected PEM certificates in {certificate_file}, found: {problem}$"
    ) as raised:
        tls.context()
    bad_inputs.keep("Certificates and keys", raised.value)


def test_the_file_for_openssl_has_an_encrypted_key_and_is_gone_afterwards(
    certificate_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, str, str | None]] = []

    def load(_context: ssl.SSLContext, file: str, *, password: str | None = None) -> None:
        seen.append((file, Path(file).stat().st_mode & 0o777, Path(file).read_text(), password))

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    Tls(inline(CERTIFICATE), in_file(certificate_file, "secret")).context()
    ((file, mode, text, password),) = seen
    assert mode == 0o600
    assert "BEGIN ENCRYPTED PRIVATE KEY" in text
    assert password, "without a password OpenSSL asks for one on the terminal"
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        pytest.param(
            Tls(Store("ssl.truststore", "PEM", "/absent/ca.pem")), "/absent/ca.pem, found: No such", id="no such file"
        ),
        pytest.param(
            Tls(inline(CERTIFICATE), in_file("/absent/me.pem")), "/absent/me.pem, found: No such", id="no such key"
        ),
        pytest.param(Tls(inline("no PEM")), "the inline text, found: no PEM certificate", id="inline and no PEM"),
        pytest.param(
            Tls(inline(pem("CERTIFICATE", "AAAA"))), "the inline text, found: .*", id="inline and no certificate"
        ),
    ],
)
def test_files_that_cannot_be_used_are_named(tls: Tls, named: str, bad_inputs: BadInputs) -> None:
    with pytest.raises(ConfigError, match=f"^ssl.(trust|key)store: expected PEM certificates in {named}") as raised:
        tls.context()
    bad_inputs.keep("Certificates and keys", raised.value, before="PEM: ")


def test_a_changed_file_is_used_for_the_next_connection_and_a_broken_one_is_tried_again(certificate_file: str) -> None:
    tls = Tls(Store("ssl.truststore", "PEM", certificate_file))
    first = tls.context()
    assert tls.context() is first, "an unchanged file is read once"
    Path(certificate_file).write_text("half a fi")
    with pytest.raises(BrokerError, match=r"after a change of the file: ssl.truststore: expected PEM"):
        tls.context()
    Path(certificate_file).write_text(CERTIFICATE * 2)
    assert tls.context() is not first
