"""Which credentials open a bucket as a source: their own, or those of the environment.

The environment's are those of QUIRE_BLOBS, which can read the files of all tenants. So where that
is a bucket of the same provider, a source uses them only if the operator says so.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quire.errors import SourceRefused

SHARED = "shared"
#: What a provider needs, and what it takes as well.
_NAMES = {
    "s3": (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_SESSION_TOKEN", "AWS_REGION")),
    "gs": (("GOOGLE_APPLICATION_CREDENTIALS",), ()),
    "az": (("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"), ()),
}


class Access(NamedTuple):
    """How a bucket is opened."""

    #: By the names of the variables that hold them; None: the environment decides.
    credentials: Mapping[str, str] | None
    endpoint: str


def access_of(scheme: str, settings: Mapping[str, Any]) -> Access:
    """Return how a bucket of a provider is opened as a source, or raise SourceRefused."""
    text = str(settings.get("source_credentials") or "")
    if text and text != SHARED:
        return Access(_parsed(scheme, text), str(settings.get("source_endpoint") or ""))
    if not text and _is_provider_of_blobs(scheme, settings):
        raise SourceRefused(
            f"{scheme}://: the credentials of the environment are those of the stored files "
            "(QUIRE_BLOBS), so they open no source. Set QUIRE_SOURCE_CREDENTIALS to others, or to "
            f"`{SHARED}` if sources may be read with the same."
        )
    return Access(None, str(settings.get("bucket_endpoint") or ""))


def described(settings: Mapping[str, Any]) -> str | None:
    """Say which credentials buckets are read with as a source, if it is not plain."""
    text = str(settings.get("source_credentials") or "")
    scheme = str(settings.get("blobs") or "").partition("://")[0].lower()
    if text == SHARED:
        return "sources in buckets: read with the credentials of the stored files (shared)"
    if text:
        given = [name for name, (needed, _) in _NAMES.items() if set(needed) <= set(_pairs(text))]
        return f"sources in buckets: own credentials for {', '.join(given) or 'no provider'}"
    return (
        f"sources in buckets: none at {scheme}://, no QUIRE_SOURCE_CREDENTIALS" if scheme else None
    )


def store_options(scheme: str, credentials: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of obstore for credentials; it takes no other from the environment."""
    if scheme == "s3":
        known = {
            "access_key_id": credentials["AWS_ACCESS_KEY_ID"],
            "secret_access_key": credentials["AWS_SECRET_ACCESS_KEY"],
            "token": credentials.get("AWS_SESSION_TOKEN"),
            "expires_at": None,
        }
        region = credentials.get("AWS_REGION")
        return {"credential_provider": lambda: known, **({"region": region} if region else {})}
    if scheme == "gs":
        return {"application_credentials": credentials["GOOGLE_APPLICATION_CREDENTIALS"]}
    key = {"access_key": credentials["AZURE_STORAGE_ACCOUNT_KEY"], "expires_at": None}
    return {
        "credential_provider": lambda: key,
        "account_name": credentials["AZURE_STORAGE_ACCOUNT_NAME"],
    }


def _is_provider_of_blobs(scheme: str, settings: Mapping[str, Any]) -> bool:
    return str(settings.get("blobs") or "").partition("://")[0].lower() == scheme


def _parsed(scheme: str, text: str) -> dict[str, str]:
    found = _pairs(text)
    needed, more = _NAMES[scheme]
    if missing := [name for name in needed if not found.get(name)]:
        raise SourceRefused(
            f"{scheme}://: QUIRE_SOURCE_CREDENTIALS lacks {', '.join(missing)}. Write NAME=VALUE "
            f"with spaces between; {scheme}:// takes {', '.join((*needed, *more))}."
        )
    return {name: value for name, value in found.items() if name in (*needed, *more)}


def _pairs(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split())
    return {name: value for name, mark, value in pairs if mark}
