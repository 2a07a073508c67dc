"""OpenID Connect: where a browser is sent, and who comes back (authorization code with PKCE).

What the provider says counts only if signature, issuer, audience, times and nonce are right. The
provider is the operator's choice, so it may have an internal address; its answers have a deadline
and a size. The tokens are checked by joserfc, the library that Authlib uses.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import httpcore

from quire import log
from quire.errors import FetchFailed, NotSignedIn, QuireError
from quire.fetch.http_client import ssl_context
from quire.fetch.items import SourceOptions
from quire.fetch.network import Deadline, GuardedBackend
from quire.settings import is_secure

if TYPE_CHECKING:
    from joserfc.jwk import Key

#: Seconds for one answer of the provider, and its most bytes.
SECONDS, LARGEST = 10.0, 256 << 10
#: Seconds for which its configuration and keys are kept, and between two looks for a new key.
KEEP, AGAIN = 3600.0, 10.0
#: Seconds by which clocks may differ.
LEEWAY = 60.0
#: Signatures with a key pair only: with a shared secret, the public key could be taken for it.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
LONGEST = 2000
_KEY_TYPES = frozenset({"RSA", "EC", "OKP"})


@dataclass(frozen=True, slots=True)
class Client:
    """This server, as the provider knows it."""

    issuer: str
    client_id: str
    client_secret: str
    redirect_uri: str
    scopes: tuple[str, ...]


class Attempt(NamedTuple):
    """The secrets of one sign-in: its browser keeps them in a cookie until it comes back."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def begin(cls) -> "Attempt":
        """Make new secrets."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @classmethod
    def of_cookie(cls, cookie: str | None) -> "Attempt | None":
        """Return what a cookie holds, or None."""
        parts = (cookie or "").split(".")
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    @property
    def cookie(self) -> str:
        """The value of the cookie."""
        return ".".join(self)


class Identity(NamedTuple):
    """Whom the provider has recognised."""

    issuer: str
    subject: str
    email: str
    claims: dict[str, Any]


class Provider:
    """The OpenID provider: its configuration and keys are fetched when needed, and kept."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._lock = threading.RLock()  # the keys are fetched from where the configuration says
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: list[Key] = []
        self._keys_until = self._looked_again = float("-inf")

    def start(self, attempt: Attempt) -> str:
        """Return the URL to which the browser is sent."""
        challenge = hashlib.sha256(attempt.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.client.redirect_uri,
            "scope": " ".join(self.client.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        at = self._endpoint("authorization_endpoint")
        return f"{at}{'&' if '?' in at else '?'}{urlencode(asked)}"

    def finish(
        self, attempt: Attempt, *, code: str, state: str, issuer: str | None, now: float
    ) -> Identity:
        """Exchange the code that the browser brought for an identity, or raise NotSignedIn."""
        if not hmac.compare_digest(state.encode(), attempt.state.encode()):
            raise _refused("was begun in another browser or window")
        if issuer not in (None, self.client.issuer):
            raise _refused("comes from another provider")
        if not 0 < len(code) <= LONGEST:
            raise _refused("has no code of the provider")
        claims = self._verified(self._exchanged(code, attempt.verifier))
        self._check(claims, attempt.nonce, now)
        return Identity(self.client.issuer, claims["sub"], _email(claims), claims)

    def _exchanged(self, code: str, verifier: str) -> str:
        """Return the ID token for a code."""
        c = self.client
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": c.redirect_uri,
            "code_verifier": verifier,
            "client_id": c.client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        offered = self._configured().get("token_endpoint_auth_methods_supported")
        if c.client_secret and offered and "client_secret_basic" not in offered:
            form["client_secret"] = c.client_secret
        elif c.client_secret:
            pair = f"{quote(c.client_id, safe='')}:{quote(c.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        answer = _ask(self._endpoint("token_endpoint"), form, headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            log.event("oidc.refused", level="warning", error=str(answer.get("error"))[:100])
            raise _refused("was not accepted by the provider")
        return token

    def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature is right."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        def key_of(signed: Any) -> "Key":
            return self._key(signed.headers().get("kid"))

        try:
            return dict(jwt.decode(token, key_of, algorithms=ALGORITHMS).claims)
        except QuireError:
            raise
        except (JoseError, ValueError, TypeError, AttributeError, KeyError) as error:
            log.event("oidc.refused", level="warning", error=f"{type(error).__name__}: {error}")
            raise _refused("has a token without a valid signature") from error

    def _key(self, kid: str | None) -> "Key":
        """Return the key of a signature; one that is unknown may be new."""
        now = time.monotonic()
        with self._lock:
            if now >= self._keys_until:
                self._fetch_keys(now)
            elif kid not in {each.kid for each in self._keys} and now >= self._looked_again + AGAIN:
                self._looked_again = now
                self._fetch_keys(now)
            found = [each for each in self._keys if kid is None or each.kid == kid]
        if len(found) != 1:
            raise _refused("has a token that is signed with an unknown key")
        return found[0]

    def _fetch_keys(self, now: float) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwk import JWKRegistry

        listed = _ask(self._endpoint("jwks_uri")).get("keys")
        found = []
        for each in listed if isinstance(listed, list) else ():
            is_usable = isinstance(each, dict) and each.get("kty") in _KEY_TYPES
            if is_usable and each.get("use", "sig") == "sig":
                try:
                    found.append(JWKRegistry.import_key(each))
                except (JoseError, ValueError, TypeError):
                    continue  # of a sort that is not known here
        self._keys, self._keys_until = found, now + KEEP

    def _check(self, claims: dict[str, Any], nonce: str, now: float) -> None:
        c, audience = self.client, claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        party = claims.get("azp", c.client_id if len(audiences) == 1 else None)
        times = {name: claims.get(name, 0.0) for name in ("exp", "iat", "nbf")}
        is_timed = all(isinstance(t, int | float) for t in times.values())
        told = claims.get("nonce")
        subject = claims.get("sub")
        for is_right, what in (
            (claims.get("iss") == c.issuer, "is of another issuer"),
            (c.client_id in audiences and party == c.client_id, "is meant for another client"),
            (is_timed and times["exp"] > now - LEEWAY, "has expired"),
            (is_timed and max(times["iat"], times["nbf"]) <= now + LEEWAY, "is of the future"),
            (isinstance(told, str) and hmac.compare_digest(told.encode(), nonce.encode()),
             "is of another sign-in"),
            (isinstance(subject, str) and 0 < len(subject) <= 255, "names nobody"),
        ):  # fmt: skip
            if not is_right:
                raise _refused(f"has a token that {what}")

    def _configured(self) -> dict[str, Any]:
        now = time.monotonic()
        with self._lock:
            known, until = self._metadata, self._metadata_until
        if known and now < until:
            return known
        issuer = self.client.issuer
        told = _ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if told.get("issuer") != issuer:
            raise FetchFailed(
                f"single sign-on: the provider at {issuer} says that it is another one. The "
                "operator should compare QUIRE_OIDC_ISSUER with its configuration."
            )
        with self._lock:
            self._metadata, self._metadata_until = told, now + KEEP
        return told

    def _endpoint(self, name: str) -> str:
        url = self._configured().get(name)
        if not isinstance(url, str) or not is_secure(url):
            raise FetchFailed(f"single sign-on: the provider names no https URL as {name}.")
        return url


def _email(claims: dict[str, Any]) -> str:
    email = claims.get("email")
    if not isinstance(email, str) or claims.get("email_verified") is not True:
        raise _refused("names no e-mail address that the provider has verified")
    if not email.isascii():
        # Lower case makes one of some letters: the Kelvin sign would become the k of somebody else.
        raise _refused("names an e-mail address with letters beyond ASCII")
    return email.strip().lower()


def _refused(what: str) -> NotSignedIn:
    return NotSignedIn(f"single sign-on: this sign-in {what}. Nothing was changed; begin again.")


def _ask(
    url: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object that the provider answers; redirects are not followed."""
    deadline = Deadline(lambda: None)
    deadline.begin(SECONDS)
    backend = GuardedBackend(deadline, SourceOptions(allow_private=True))
    sent = {"User-Agent": "quire", "Accept": "application/json", "Accept-Encoding": "identity"}
    got = b""
    try:
        with (
            httpcore.ConnectionPool(ssl_context=ssl_context(), network_backend=backend) as pool,
            pool.stream(
                "POST" if form else "GET",
                url,
                headers=list({**sent, **(headers or {})}.items()),
                content=urlencode(form).encode() if form else None,
            ) as response,
        ):
            status = response.status
            for piece in response.iter_stream():
                got += piece
                if len(got) > LARGEST:
                    raise _unusable(url, f"it answers more than {LARGEST:,} bytes")
        answer = json.loads(got)
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
        raise _unusable(url, f"{type(error).__name__}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(url, f"it answers {status} and no JSON") from error
    is_answer = status == 200 or (form is not None and status in (400, 401))
    if not is_answer or not isinstance(answer, dict):
        raise _unusable(url, f"it answers {status}")
    return answer


def _unusable(url: str, why: str) -> FetchFailed:
    log.event("oidc.failed", level="warning", url=url, error=why)
    return FetchFailed(
        "single sign-on: the provider does not answer as it should. Try again in a minute; the "
        "operator finds the reason in the log, as oidc.failed."
    )
