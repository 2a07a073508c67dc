"""Links into a bucket that give one object for some minutes, under the name of a document.

obstore signs a URL, but without the name and the type that a browser is to be told. So the URL is
signed once more with them, which needs the secret itself: where credentials come from a machine's
role, there is no link, and the bytes go through the API.
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit, urlunsplit

from quire.fetch.blobs.azure_sas import mended
from quire.fetch.names import safe_name

if TYPE_CHECKING:
    from quire.fetch.object_store import Bucket

#: Seconds that a link works: long enough to begin a download, too short to be passed around.
SECONDS = 300
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"


def signed(bucket: "Bucket", key: str, name: str, media_type: str, *, shown: bool) -> str | None:
    """Return a link to an object that is saved under `name`, or `shown`; None if there is none."""
    kind = {"s3": _amazon, "gs": _google, "az": _azure}[bucket.scheme]
    if not any(os.environ.get(each) for each in _SECRETS[bucket.scheme]):
        return None
    plain = bucket.sign(key, SECONDS)
    return None if plain is None else kind(plain, _disposition(name, shown), media_type)


_SECRETS = {
    "s3": ("AWS_SECRET_ACCESS_KEY",),
    "gs": (_GOOGLE,),
    "az": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
}


def _disposition(name: str, shown: bool) -> str:
    plain = safe_name(name)
    quoted = quote(plain, safe="")
    how = "inline" if shown else "attachment"
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

    return signed_again(parts, given | _told(disposition, media_type), "X-Amz-", scope, sign)


def _google(url: str, disposition: str, media_type: str) -> str | None:
    try:
        from google.auth import crypt

        made: Any = crypt.RSASigner
        signer = made.from_service_account_file(os.environ[_GOOGLE])
    except (ImportError, OSError, ValueError):
        return None  # no library to sign with, or credentials of another kind
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    scope = given["X-Goog-Credential"].partition("/")[2]

    def sign(text: bytes) -> str:
        return bytes(signer.sign(text)).hex()

    return signed_again(parts, given | _told(disposition, media_type), "X-Goog-", scope, sign)


def _told(disposition: str, media_type: str) -> dict[str, str]:
    return {
        "response-content-disposition": disposition,
        "response-content-type": media_type,
    }


def signed_again(
    parts: SplitResult, given: dict[str, str], mark: str, scope: str, sign: Callable[[bytes], str]
) -> str:
    """Sign a URL with other parameters, in the way that Amazon made and Google took over."""
    names = sorted(name for name in given if name != f"{mark}Signature")
    query = "&".join(f"{_written(name)}={_written(given[name])}" for name in names)
    # Google's client signs for the real server, whatever address it is told to reach it by.
    host = parts.netloc if mark == "X-Amz-" else "storage.googleapis.com"
    request = f"GET\n{parts.path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    text = "\n".join(
        [
            given[f"{mark}Algorithm"],
            given[f"{mark}Date"],
            scope,
            hashlib.sha256(request.encode()).hexdigest(),
        ]
    )
    query += f"&{mark}Signature={sign(text.encode())}"
    return urlunsplit(parts._replace(query=query))


def _azure(url: str, disposition: str, media_type: str) -> str | None:
    return mended(url, disposition, media_type)


def _written(text: str) -> str:
    return quote(text, safe="~")
