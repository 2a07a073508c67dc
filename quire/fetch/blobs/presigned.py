"""Presigned URLs that serve one object for some minutes under the name of its document.

obstore signs a URL without Content-Disposition and Content-Type of the response. So the URL is
signed again with them, which needs the secret key: with credentials from a machine's role there
is no presigned URL, and the API serves the bytes.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit, urlunsplit

from quire.fetch.names import safe_name

if TYPE_CHECKING:
    from quire.fetch.object_store import Bucket

#: Long enough to begin a download, too short to be shared.
VALID_SECONDS = 300
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"


def presigned_url(
    bucket: "Bucket", key: str, name: str, media_type: str, *, inline: bool
) -> str | None:
    """Return a presigned URL that names the file, as attachment or inline; None if unsigned."""
    kind = {"s3": _amazon, "gs": _google, "az": fix_signature}[bucket.scheme]
    if not any(os.environ.get(each) for each in _SECRETS[bucket.scheme]):
        return None
    plain = bucket.sign(key, VALID_SECONDS)
    return None if plain is None else kind(plain, _disposition(name, inline), media_type)


_AZURE_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_SECRETS = {
    "s3": ("AWS_SECRET_ACCESS_KEY",),
    "gs": (_GOOGLE,),
    "az": _AZURE_KEYS,
}


def _disposition(name: str, inline: bool) -> str:
    plain = safe_name(name)
    quoted = quote(plain, safe="")
    how = "inline" if inline else "attachment"
    if plain == quoted:
        return f'{how}; filename="{plain}"'
    return f"{how}; filename*=utf-8''{quoted}"


def _amazon(url: str, disposition: str, media_type: str) -> str | None:
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    access, _, scope = given["X-Amz-Credential"].partition("/")
    if access != os.environ.get("AWS_ACCESS_KEY_ID"):
        return None
    key: bytes = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for each in scope.split("/"):
        key = hmac.new(key, each.encode(), hashlib.sha256).digest()

    def sign(text: bytes) -> str:
        return hmac.new(key, text, hashlib.sha256).hexdigest()

    given |= _response_parameters(disposition, media_type)
    return sign_v4(parts, given, "X-Amz-", scope, sign)


def _google(url: str, disposition: str, media_type: str) -> str | None:
    try:
        from google.auth import crypt

        made: Any = crypt.RSASigner
        signer = made.from_service_account_file(os.environ[_GOOGLE])
    except (ImportError, OSError, ValueError):
        return None  # no signing library, or other credentials than a service account's
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    scope = given["X-Goog-Credential"].partition("/")[2]

    def sign(text: bytes) -> str:
        return bytes(signer.sign(text)).hex()

    given |= _response_parameters(disposition, media_type)
    return sign_v4(parts, given, "X-Goog-", scope, sign)


def _response_parameters(disposition: str, media_type: str) -> dict[str, str]:
    return {"response-content-disposition": disposition, "response-content-type": media_type}


def sign_v4(
    parts: SplitResult, given: dict[str, str], mark: str, scope: str, sign: Callable[[bytes], str]
) -> str:
    """Sign a URL with other parameters by Signature Version 4, as Amazon and Google do."""
    names = sorted(name for name in given if name != f"{mark}Signature")
    query = "&".join(f"{_escape(name)}={_escape(given[name])}" for name in names)
    # Google's client signs for the real host even if another endpoint is configured.
    host = parts.netloc if mark == "X-Amz-" else "storage.googleapis.com"
    request = f"GET\n{parts.path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join([given[f"{mark}Algorithm"], given[f"{mark}Date"], scope, digest])
    query += f"&{mark}Signature={sign(text.encode())}"
    return urlunsplit(parts._replace(query=query))


def _escape(text: str) -> str:
    return quote(text, safe="~")


def fix_signature(
    url: str,
    disposition: str = "",
    media_type: str = "",
    *,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Sign an Azure SAS URL again, if the account key is known.

    Azure signs the blob's name, obstore the percent-encoded path: its signature is refused for
    names with spaces or non-ASCII letters. Also adds Content-Disposition and Content-Type.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    given = dict(parse_qsl(parts.query))
    key = next((environ[name] for name in _AZURE_KEYS if environ.get(name)), "")
    is_valid = path == parts.path and not disposition
    if is_valid or not key or "sig" not in given or "skoid" in given:
        return url
    account = environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    # Emulators have the account in the path, Azure has it in the host name.
    within = f"/{account}" if account in (parts.hostname or "") else ""
    fields = [given["sp"], given["st"], given["se"], f"/blob{within}{path}", "", "", ""]
    # Snapshot time, encryption scope, then five response headers.
    headers = ["", "", "", disposition, "", "", media_type]
    text = "\n".join([*fields, given["sv"], given["sr"], *headers])
    made = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    given["sig"] = base64.b64encode(made).decode()
    given |= {"rscd": disposition, "rsct": media_type} if disposition else {}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
    return urlunsplit(parts._replace(query=query))
