"""A real token server: OAuth 2.0 client credentials over HTTPS, with signed JWTs and the key set that verifies them."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

CLIENT, CLIENT_SECRET, AUDIENCE = "txnwatch-client", "client-secret:1 +/", "kafka"
ISSUER = "https://tokens.example"
KEY_ID = "the-key"
# Part of every token: a search for it, also in base64, finds the token. No letter of it has "+", "/" or "=" there.
TOKEN_MARK = "kanarienvogelImToken"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8))


class TokenServer:
    """Listens on loopback; a context manager.

    Attributes:
        life_s: how long the next tokens are valid.
        answers: how many tokens were given.
        fails: whether the next requests are answered with HTTP 503.
        failures: how many requests were answered so.
    """

    def __init__(self, directory: Path, keys: Path) -> None:
        self._key = generate_private_key(65537, 2048)
        self.life_s = 300.0
        self.answers = 0
        self.fails = False
        self.failures = 0
        self.key_set = directory / "jwks.json"
        public = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": KEY_ID,
            "use": "sig",
            "alg": "RS256",
            "n": _number(public.n),
            "e": _number(public.e),
        }
        self.key_set.write_text(json.dumps({"keys": [key]}))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"https://127.0.0.1:{self._server.server_port}/token"

    def token(self, subject: str = CLIENT, life_s: float | None = None) -> str:
        """A signed token."""
        now = time.time()
        until = int(now + (life_s or self.life_s))
        claims = {"iss": ISSUER, "sub": subject, "aud": AUDIENCE, "jti": TOKEN_MARK, "iat": int(now), "exp": until}
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_text(self._key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """The status and the body of an answer."""
        if self.fails:
            self.failures += 1
            return 503, {}
        expected = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client", "error_description": "unknown client or wrong secret"}
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.answers += 1
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": int(self.life_s)}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path == "/moved":
                    self.send_response(307)
                    self.send_header("Location", server.url)
                    self.end_headers()
                    return
                status, found = server.answer(self.headers.get("Authorization", ""), parse_qs(body))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler
