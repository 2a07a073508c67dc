"""Passwords and signatures in URLs, and texts without them.

A source may need one to be fetched, so it is stored; whoever reads a job, a document, an event or
an error sees it masked.
"""

import json
import re
from typing import Any

MASK = "***"
_PASSWORD = re.compile(r"(?<=://)([^/?#\s\"'\\@:]*+:)?[^/?#\s\"'\\@]++(?=@)")
#: Parameters that hold a secret: signed URLs of the clouds, and what people call a key.
_PARAMETER = re.compile(
    r"([?&;](?:sig|signature|token|access_token|auth|key|api_?key|secret|password|pass|pwd|code"
    r"|x-(?:amz|goog|oss|obs)-(?:signature|credential|security-token)|awsaccesskeyid)=)"
    r"[^&;#\s\"'\\]++",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return a text, JSON too, without the secrets of the URLs in it."""
    if "://" not in text:
        return text
    text = _PASSWORD.sub(lambda found: (found[1] or "") + MASK, text)
    return _PARAMETER.sub(rf"\1{MASK}", text)


def masked_values(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the values with the texts of these names masked."""
    return values | {
        name: masked(value) for name in names if isinstance(value := values.get(name), str)
    }


def masked_json(text: str | None) -> Any:
    """Return what a JSON text holds, masked; None for None."""
    return None if text is None else json.loads(masked(text))
