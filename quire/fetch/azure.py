"""Signs the URLs of Azure that obstore signs over the wrong text.

Azure computes the signature over the name of a blob, obstore over the name as it is written in
the URL. They differ for a name with a space or a letter beyond ASCII, and Azure refuses it.
"""

import base64
import hashlib
import hmac
import os
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
#: What follows the version and the kind of resource in the text that is signed; all unused.
_UNUSED = [""] * 7


def mended(url: str) -> str:
    """Return a signed URL whose signature Azure accepts, if the key of the account is known."""
    parts = urlsplit(url)
    place = unquote(parts.path)
    given = dict(parse_qsl(parts.query))
    key = next((os.environ[name] for name in _KEYS if os.environ.get(name)), "")
    if place == parts.path or not key or "sig" not in given or "skoid" in given:
        return url
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    # Emulators have the account in the path, Azure has it in the name of the server.
    within = f"/{account}" if account in (parts.hostname or "") else ""
    fields = [given["sp"], given["st"], given["se"], f"/blob{within}{place}", "", "", ""]
    text = "\n".join([*fields, given["sv"], given["sr"], *_UNUSED])
    made = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    given["sig"] = base64.b64encode(made).decode()
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
    return urlunsplit(parts._replace(query=query))
