"""Client properties into a login by a token or by Kerberos, and what is missing for one."""

from __future__ import annotations

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.client.security import KerberosLogin, Login, TokenLogin, login_of
from txnwatch.streaming.client.tls import Store, Tls
from txnwatch.streaming.client.tokens import ClientCredentials, MskIam, TokenFile

URL = "https://idp.example:8443/token?a=b"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
TOKEN = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": URL}
CREDENTIALS = f'{MODULE} clientId="me" clientSecret="pw"'
GSSAPI = {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}
MSK = {"sasl.mechanism": "AWS_MSK_IAM", "bootstrap.servers": "b-1.x.c2.kafka.eu-west-1.amazonaws.com:9098"}
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"

UNDERSTOOD: dict[str, tuple[dict[str, str], Login]] = {
    "client credentials": (
        {**TOKEN, "sasl.jaas.config": f'{CREDENTIALS} scope="kafka";'},
        TokenLogin(ClientCredentials(URL, "me", "pw", "kafka")),
    ),
    "client credentials as properties of Kafka 4.1": (
        {
            **TOKEN,
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "pw",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.header.urlencode": "true",
        },
        TokenLogin(ClientCredentials(URL, "me", "pw", "kafka", encodes_header=True)),
    ),
    "the class of Kafka 3": (
        {
            **TOKEN,
            "sasl.jaas.config": f"{CREDENTIALS};",
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
            "OAuthBearerLoginCallbackHandler",
        },
        TokenLogin(ClientCredentials(URL, "me", "pw")),
    ),
    "the authority of the token endpoint, and an extension": (
        {
            **TOKEN,
            "ssl.truststore.location": "/brokers.jks",
            "sasl.jaas.config": f'{CREDENTIALS} ssl.truststore.type="PEM" ssl.truststore.location="/idp.pem" '
            'extension_logicalCluster="lkc-1";',
        },
        TokenLogin(
            ClientCredentials(URL, "me", "pw", tls=Tls(Store("ssl.truststore", "PEM", "/idp.pem"))),
            (("logicalCluster", "lkc-1"),),
        ),
    ),
    "a token file": (
        {**TOKEN, "sasl.oauthbearer.token.endpoint.url": "file:///run/a%20token", "sasl.jaas.config": f"{MODULE};"},
        TokenLogin(TokenFile("/run/a token")),
    ),
    "Kerberos with the ticket cache": (
        {**GSSAPI, "sasl.jaas.config": f"{KERBEROS} useTicketCache=true;"},
        KerberosLogin("kafka"),
    ),
    "Kerberos with a keytab": (
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": f'{KERBEROS} useKeyTab=true storeKey=true keyTab="FILE:/me.keytab" '
            'principal="me/host@REALM" serviceName="kafka";',
        },
        KerberosLogin("kafka", "me/host@REALM", "/me.keytab"),
    ),
    "IAM": ({**MSK, "sasl.jaas.config": f"{IAM};"}, TokenLogin(MskIam("eu-west-1"))),
    "IAM with a profile": (
        {**MSK, "sasl.jaas.config": f'{IAM} awsProfileName="p";'},
        TokenLogin(MskIam("eu-west-1", profile="p")),
    ),
    "IAM with a role": (
        {**MSK, "sasl.jaas.config": f'{IAM} awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s";'},
        TokenLogin(MskIam("eu-west-1", role="arn:aws:iam::1:role/r", session="s")),
    ),
    "IAM as tokens, serverless": (
        {
            "sasl.mechanism": "OAUTHBEARER",
            "bootstrap.servers": "boot-x.c2.kafka-serverless.us-east-1.amazonaws.com:9098",
            "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        },
        TokenLogin(MskIam("us-east-1")),
    ),
}


@pytest.mark.parametrize(("properties", "login"), UNDERSTOOD.values(), ids=UNDERSTOOD.keys())
def test_a_login_is_understood(properties: dict[str, str], login: Login) -> None:
    assert login_of(properties) == login


REFUSED = {
    "no endpoint": ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url: expected https://host"),
    "an endpoint of another scheme": (
        {**TOKEN, "sasl.oauthbearer.token.endpoint.url": "ftp://me:pw@idp/token"},
        r"sasl.oauthbearer.token.endpoint.url: expected .*, found 'ftp://\*\*\*@idp/token'",
    ),
    "no client": ({**TOKEN, "sasl.jaas.config": f"{MODULE};"}, 'sasl.jaas.config: expected .* with clientId="..."'),
    "another handler": (
        {**TOKEN, "sasl.login.callback.handler.class": "com.example.Mine"},
        "sasl.login.callback.handler.class: expected a class named IAMOAuth.* found 'com.example.Mine'",
    ),
    "another grant": (
        {**TOKEN, "sasl.oauthbearer.jwt.retriever.class": "org.x.JwtBearerJwtRetriever"},
        "sasl.oauthbearer.jwt.retriever.class: expected a class named ClientCredentialsJwtRetriever or",
    ),
    "no service": ({"sasl.mechanism": "GSSAPI"}, "sasl.kerberos.service.name: expected the name of the brokers'"),
    "no keytab": (
        {**GSSAPI, "sasl.jaas.config": f'{KERBEROS} useKeyTab=true principal="me@R";'},
        'sasl.jaas.config: expected keyTab="..." and principal="..."',
    ),
    "no region": ({**MSK, "bootstrap.servers": "kafka.internal:9098"}, "sasl.mechanism: expected a region"),
    "an unknown option of IAM": (
        {**MSK, "sasl.jaas.config": f'{IAM} awsRoleArn="r" awsRoleExternalId="x";'},
        "sasl.jaas.config: expected only these AWS options: awsProfileName, .*; found awsRoleExternalId",
    ),
}


@pytest.mark.parametrize(("properties", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_everything_that_is_missing_is_named(
    properties: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=f"^{message}"):
        login_of(properties)


def test_the_region_of_a_cluster_behind_another_name_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert login_of({**MSK, "bootstrap.servers": "kafka.internal:9098"}) == TokenLogin(MskIam("eu-north-1"))


def test_no_secret_is_in_the_text_of_a_login() -> None:
    login = login_of({**TOKEN, "sasl.jaas.config": f'{MODULE} clientId="me" clientSecret="hush";'})
    assert "hush" not in repr(login)
