"""A real KDC of MIT Kerberos (Debian: krb5-kdc, krb5-admin-server), with a realm, principals and keytabs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Self

from support.waiting import eventually
from txnwatch_demo.embedded.real_servers import ServerProcess, free_ports

REALM = "TXNWATCH.TEST"
_SBIN = "/usr/sbin:/sbin"


def missing_program() -> str | None:
    """The first program of a KDC that this machine does not have."""
    return next((name for name in ("krb5kdc", "kdb5_util", "kadmin.local") if _program(name) is None), None)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


class Kdc:
    """Listens on loopback; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (port,) = free_ports(1)
        self._port = port
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " rdns = false\n dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
            f"[domain_realm]\n 127.0.0.1 = {REALM}\n localhost = {REALM}\n"
        )
        profile = directory / "kdc.conf"
        profile.write_text(
            f"[kdcdefaults]\n kdc_ports = {port}\n kdc_tcp_ports = {port}\n[realms]\n {REALM} = {{\n"
            f"  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
            f"  acl_file = {directory}/acl\n  max_life = 1h\n }}\n"
        )
        self._environ = {**os.environ, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}
        self._log = directory / "kdc.log"
        self._server = ServerProcess("KDC", [str(_program("krb5kdc")), "-n"], self._log, env=self._environ)

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._server.start(self._answers, timeout_s=20.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()

    def keytab(self, principal: str) -> Path:
        """Adds a principal and writes its keytab."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        eventually(path.exists, 5.0, "the keytab")
        return path

    @staticmethod
    def keys(keytab: Path) -> list[bytes]:
        """The secret keys in a keytab, which has version 0x0502: see the format of MIT Kerberos."""
        data, at, keys = keytab.read_bytes(), 2, []
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            at += 4
            (components,) = struct.unpack_from(">H", data, at)
            after = at + 2
            for _ in range(components + 1):  # the realm, and the components of the principal
                after += 2 + struct.unpack_from(">H", data, after)[0]
            length_at = after + 11  # after the type of the name, the time, the version and the type of the key
            (length,) = struct.unpack_from(">H", data, length_at)
            keys.append(data[length_at + 2 : length_at + 2 + length])
            at += size
        return keys

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1.0):
            return True
        return False

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(_program(name)), *arguments]
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
