"""Signs the URLs of Azure that obstore signs over the wrong text, or without a file's name.

Azure computes the signature over the name of a blob, obstore over the name as it is written in
the URL. They differ for a name with a space or a letter beyond ASCII, and Azure refuses it.
"""

import base64
import hashlib
import hmac
import os
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")


def mended(url: str, disposition: str = "", media_type: str = "") -> str:
    """Return a signed URL whose signature Azure accepts, if the key of the account is known.

    It may tell a browser what to do with the answer and of what type it is.
    """
    parts = urlsplit(url)
    place = unquote(parts.path)
    given = dict(parse_qsl(parts.query))
    key = next((os.environ[name] for name in _KEYS if os.environ.get(name)), "")
    is_right = place == parts.path and not disposition
    if is_right or not key or "sig" not in given or "skoid" in given:
        return url
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    # Emulators have the account in the path, Azure has it in the name of the server.
    within = f"/{account}" if account in (parts.hostname or "") else ""
    fields = [given["sp"], given["st"], given["se"], f"/blob{within}{place}", "", "", ""]
    # Time of a snapshot, scope of encryption, then five headers of the answer.
    told = ["", "", "", disposition, "", "", media_type]
    text = "\n".join([*fields, given["sv"], given["sr"], *told])
    made = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    given["sig"] = base64.b64encode(made).decode()
    given |= {"rscd": disposition, "rsct": media_type} if disposition else {}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
    return urlunsplit(parts._replace(query=query))
