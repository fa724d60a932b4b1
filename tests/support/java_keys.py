"""Java's stores for tests, made by the keytool of the JDK and by openssl, as an operator makes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from txnwatch.streaming.job.jvm import java

PASSWORD = "store-secret"


def truststore(path: Path, kind: str, certificate: Path) -> Path:
    """A store of this kind that trusts a certificate; made once."""
    if path.exists():
        return path
    _keytool(
        *("-importcert", "-noprompt", "-alias", "ours", "-file", str(certificate)),
        *("-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD),
    )
    return path


def keystore(path: Path, kind: str, keys: Path) -> Path:
    """A store of this kind with the key and the certificates of a PEM file; made once."""
    if path.exists():
        return path
    pkcs12 = path.with_suffix(".from-openssl.p12")
    _run(
        *("openssl", "pkcs12", "-export", "-in", str(keys), "-name", "me"),
        *("-out", str(pkcs12), "-passout", f"pass:{PASSWORD}"),
    )
    _keytool(
        *("-importkeystore", "-noprompt", "-srckeystore", str(pkcs12), "-srcstoretype", "PKCS12"),
        *("-srcstorepass", PASSWORD, "-destkeystore", str(path), "-deststoretype", kind, "-deststorepass", PASSWORD),
    )
    return path


def _keytool(*arguments: str) -> None:
    beside = Path(java()).with_name("keytool")
    _run(str(beside) if beside.exists() else str(shutil.which("keytool")), *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
