"""Tokens for Amazon MSK with IAM, made by the vendor's signer (an extra).

The brokers also accept them with the mechanism OAUTHBEARER. librdkafka has this mechanism, but not AWS_MSK_IAM.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.text.redaction import redacted
from txnwatch.streaming.client.tokens import Token, token_of

AWS_MSK_IAM: Final = "AWS_MSK_IAM"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_OPTIONS: Final = frozenset({"awsProfileName", "awsRoleArn", "awsRoleSessionName"})


@dataclass(frozen=True, slots=True)
class MskIam:
    """A TokenSource of signed requests; without a profile and a role, the default chain of AWS has the credentials."""

    region: str
    profile: str | None = None
    role: str | None = None
    session: str = "txnwatch"

    @property
    def user(self) -> str:
        """See TokenSource."""
        return self.role or (f"of the AWS profile {self.profile}" if self.profile else "of the AWS credentials")

    def fetch(self) -> Token:
        """See TokenSource.

        Raises:
            ConfigError: the signer is not installed.
            BrokerError: AWS gives no credentials.
        """
        signer = _signer()
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

        try:
            token, expires_ms = self._signed(signer)
        except (BotoCoreError, ClientError, ValueError, AttributeError) as exc:  # the last one: no credentials at all
            found = "no credentials" if isinstance(exc, AttributeError) else redacted(str(exc))
            raise BrokerError(f"AWS_MSK_IAM {self.user}: expected a signed token, found: {found}") from exc
        return token_of(token, AWS_MSK_IAM, _life_s(expires_ms))

    def _signed(self, signer: Any) -> tuple[str, int]:
        if self.role is not None:
            found = signer.generate_auth_token_from_role_arn(self.region, self.role, self.session)
        elif self.profile is not None:
            found = signer.generate_auth_token_from_profile(self.region, self.profile)
        else:
            found = signer.generate_auth_token(self.region)
        token, expires_ms = found
        return str(token), int(expires_ms)


def msk_iam_of(properties: Mapping[str, str], options: Mapping[str, str]) -> MskIam:
    """The token source among client properties and the options of the login module.

    Raises:
        ConfigError: the region is unknown, or an option cannot be used.
    """
    unknown = sorted(name for name in options if name.startswith("aws") and name not in _OPTIONS)
    if unknown:
        raise ConfigError(
            f"sasl.jaas.config: expected only these AWS options: {', '.join(sorted(_OPTIONS))}; found {unknown[0]}"
        )
    found = _HOST.search(properties.get("bootstrap.servers", ""))
    region = found[1] if found else next((os.environ[name] for name in _REGIONS if os.environ.get(name)), None)
    if region is None:
        raise ConfigError(
            f"sasl.mechanism: expected a region in the broker's name or in {_REGIONS[0]} for {AWS_MSK_IAM}, found none"
        )
    session = options.get("awsRoleSessionName", "txnwatch")
    return MskIam(region, options.get("awsProfileName"), options.get("awsRoleArn"), session)


def _life_s(expires_ms: int) -> float:
    return expires_ms / 1000 - time.time()


def _signer() -> Any:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError(
            f"sasl.mechanism {AWS_MSK_IAM} needs `pip install 'txnwatch[aws]'`: the package "
            "aws-msk-iam-sasl-signer-python is missing"
        ) from exc
    return MSKAuthTokenProvider
