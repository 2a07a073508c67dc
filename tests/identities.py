"""An OpenID provider of our own on a port of this machine: it speaks the protocol over HTTP.

It checks what a provider must check (client, redirect, PKCE, a code is used once), and can be told
to be hostile: to sign with other keys, to say other claims, to answer much, slowly or not at all.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "quire-client", "client-secret/+"


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token with the algorithm none."""
    parts = (json.dumps(each).encode() for each in (header, claims))
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts) + "."


class Identities:
    """The provider."""

    def __init__(self, port: int = 0) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.redirect = "http://localhost/oidc/callback"
        self.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
        self.person: dict[str, Any] = {
            "sub": "s-1", "email": "ada@example.org", "email_verified": True,
        }  # fmt: skip
        #: What is changed in the claims; None removes one.
        self.twist: dict[str, Any] = {}
        self.signed: Callable[[dict[str, Any]], str] = self._signed
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self.metadata: dict[str, Any] = {}
        #: By path: a body instead of the right one.
        self.instead: dict[str, bytes] = {}
        #: By path: how the answer is sent instead.
        self.slow: set[str] = set()
        self.moved: set[str] = set()
        self.now: Callable[[], float] = time.time
        self.is_over = threading.Event()

    def rotate(self, kid: str = "second") -> None:
        """Sign with another key from now on."""
        self.key = RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})

    def _signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def signed_as_secret(self, claims: dict[str, Any]) -> str:
        """Sign with HS256, taking the public key for the secret."""
        signed = unsigned({"alg": "HS256", "kid": self.key.kid}, claims).rstrip(".")
        made = hmac.digest(self.key.as_pem(private=False), signed.encode(), "sha256")
        return f"{signed}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"

    def authorize(self, url: str) -> str:
        """Sign the person in, as the browser that was sent here; returns where it is sent back."""
        asked = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.issuer}/authorize?")
        assert (asked["client_id"], asked["redirect_uri"]) == (CLIENT, self.redirect)
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"/oidc/callback?code={code}&state={asked['state']}"

    def exchanged(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Answer at the token endpoint."""
        told = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if told != f"{CLIENT}:client-secret%2F%2B":
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        if form["redirect_uri"] != self.redirect:
            return 400, {"error": "invalid_request"}
        now = int(self.now())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300,
            "nonce": asked["nonce"], **self.person, **self.twist,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self.signed(claims)}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                **self.metadata,
            }
        if path == "/jwks":
            return 200, {"keys": [self.key.as_dict(private=False)]}
        if path == "/token":
            return self.exchanged(form, authorization)
        return 404, {}

    def _handler(outer: Identities) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                form = {k: v for k, [v] in parse_qs(self.rfile.read(length).decode()).items()}
                told = self.headers.get("Authorization", "")
                status, answer = outer.answer(self.path, form, told)
                body = outer.instead.get(self.path, json.dumps(answer).encode())
                if self.path in outer.moved:
                    status = 302
                self.send_response(status)
                if self.path in outer.moved:
                    self.send_header("Location", f"{outer.issuer}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    if self.path in outer.slow:  # a byte now and then
                        while not outer.is_over.wait(0.05):
                            self.wfile.write(b" ")
                    self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


@contextlib.contextmanager
def provider() -> Iterator[Identities]:
    """Run a provider until the end of the block."""
    one = Identities()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield one
    finally:
        one.is_over.set()
        one.server.shutdown()
        thread.join()
        one.server.server_close()
