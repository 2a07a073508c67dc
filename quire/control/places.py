"""Names of databases as they may be shown: without passwords."""

import re

_IN_AUTHORITY = re.compile(r"(://[^/@:?#]*):[^@/]*@")
_IN_QUERY = re.compile(r"((?:password|sslpassword)=)[^&]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """Return a database URL with its password hidden."""
    return _IN_QUERY.sub(r"\1***", _IN_AUTHORITY.sub(r"\1:***@", url))
