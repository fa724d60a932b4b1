"""What a client can say about its own principal: never more than its settings have."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.certificates import Authority
from txnwatch.streaming.client.security import KerberosLogin, Login, PasswordLogin, Security, TokenLogin, own_principal
from txnwatch.streaming.client.tls import Store, Tls
from txnwatch.streaming.client.tokens import ClientCredentials, MskIam, TokenFile

PRINCIPALS: dict[str, tuple[Login, str | None]] = {
    "PLAIN": (PasswordLogin("PLAIN", "alice", "pw"), "User:alice"),
    "SCRAM": (PasswordLogin("SCRAM-SHA-512", "alice", "pw"), "User:alice"),
    "Kerberos with a keytab": (KerberosLogin("kafka", "alice/host@REALM", "/k"), "User:alice"),
    "Kerberos with a ticket": (KerberosLogin("kafka"), None),
    "a token of a client": (TokenLogin(ClientCredentials("https://idp/token", "me", "pw")), None),
    "a token in a file": (TokenLogin(TokenFile("/token")), None),
    "AWS": (TokenLogin(MskIam("eu-west-1", None, None, "txnwatch")), None),
}


@pytest.mark.parametrize(("login", "expected"), PRINCIPALS.values(), ids=PRINCIPALS.keys())
def test_a_login_says_its_user_unless_only_the_brokers_read_it(login: Login, expected: str | None) -> None:
    assert own_principal(Security("SASL_PLAINTEXT", login=login)) == expected


def test_a_client_certificate_counts_with_tls_and_without_a_login(tmp_path: Path) -> None:
    pem = Authority(tmp_path, "ours").create().issue("watcher", "DNS:localhost")
    keys = Tls(keys=Store("ssl.keystore", "PEM", str(pem)))
    assert own_principal(Security("SSL", keys)) == "User:CN=watcher"
    assert own_principal(Security("SASL_SSL", keys, PasswordLogin("PLAIN", "alice", "pw"))) == "User:alice"
    assert own_principal(Security("SSL")) == "User:ANONYMOUS"
    assert own_principal(Security()) == "User:ANONYMOUS"
