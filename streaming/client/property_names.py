"""The names of client properties: an unknown name that was meant for one of Kafka is an error.

Java's clients ignore a name that they do not know, with a warning in their log. For us a misspelt `security.protocol`
would mean PLAINTEXT, without a word. Other unknown names are settings of interceptors or of other programs: they are
ignored, as in Java.

This module imports no library, because the settings are read before the JVM begins (docs/decisions/0032). Apart from
notations.py, because it is a table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from txnwatch.state.model.errors import ConfigError

# ConsumerConfig, ProducerConfig and AdminClientConfig of Kafka 3.3.2 to 4.4.0.
_JAVA: Final = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.controllers bootstrap.resolve.timeout.ms bootstrap.servers buffer.memory buffer.memory.allocation.strategy
    check.crcs client.dns.lookup client.id client.rack compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level config.providers connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms
    enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    interceptor.classes internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported isolation.level
    key.deserializer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size metadata.cluster.check.enable
    metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys partitioner.rack.aware receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
    share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type transaction.timeout.ms transaction.two.phase.commit.enable
    transactional.id value.deserializer value.serializer
    """.split()  # noqa: SIM905 - a line for each name would be a page
)
_OURS: Final = frozenset({"sasl.username", "sasl.password"})
_PREFIXES: Final = ("config.providers.", "schema.registry.")
_SECURITY: Final = ("security.", "sasl.", "ssl.")
_NEAR: Final = 0.85
_PEM_STORE: Final = "ssl.keystore.location, with ssl.keystore.type=PEM and a file that has both"
# librdkafka's names for what Java calls differently.
_JAVA_NAMES: Final = MappingProxyType(
    {
        "enable.ssl.certificate.verification": "ssl.endpoint.identification.algorithm",
        "metadata.broker.list": "bootstrap.servers",
        "sasl.kerberos.keytab": 'sasl.jaas.config, with keyTab="..."',
        "sasl.kerberos.principal": 'sasl.jaas.config, with principal="..."',
        "sasl.mechanisms": "sasl.mechanism",
        "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.ca.location": "ssl.truststore.location, with ssl.truststore.type=PEM",
        "ssl.ca.pem": "ssl.truststore.certificates, with ssl.truststore.type=PEM",
        "ssl.certificate.location": _PEM_STORE,
        "ssl.certificate.pem": "ssl.keystore.certificate.chain, with ssl.keystore.type=PEM",
        "ssl.key.location": _PEM_STORE,
        "ssl.key.pem": "ssl.keystore.key, with ssl.keystore.type=PEM",
    }
)


def check_names(names: Iterable[str], where: str) -> None:
    """Checks the names of client properties; `where` is their source, for the error.

    Raises:
        ConfigError: a name is unknown, and was meant for Kafka's client; the message has the name that fits.
    """
    for name in names:
        meant = _meant(name)
        if meant is not None:
            raise ConfigError(f"{where}: expected a property of Kafka's Java client, found {name!r}{meant}")


def _meant(name: str) -> str | None:
    """What to say about an unknown name; None if it is known, or none of ours."""
    if name in _JAVA or name in _OURS or name.startswith(_PREFIXES):
        return None
    if name in _JAVA_NAMES:
        return f", which is librdkafka's name; Java's is {_JAVA_NAMES[name]}"
    near = difflib.get_close_matches(name.lower(), sorted(_JAVA | _OURS), n=1, cutoff=_NEAR)
    if near:
        return f"; did you mean {near[0]}?"
    return "; txnwatch knows no such setting of security" if name.startswith(_SECURITY) else None
