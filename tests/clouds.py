"""Doubles of Google Cloud Storage and Azure Blob Storage, whose real servers cannot run here.

They speak what obstore asks for: Google's XML API (list type 2, HEAD, GET, PUT, DELETE of objects)
and Azure's List Blobs, Get Blob Properties, Get and Put Blob, Put Block (List), Blob Batch. Who
asks must sign: signed URLs are checked as the real servers do, over the names of objects, not over
how a client writes them in a URL.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.servers import Asked, FaultyServer, Reply, ranged

BUCKET = "letters"
GOOGLE = "storage.googleapis.com"
ACCOUNT = "ours"
KEY = base64.b64encode(b"a key of thirty-two bytes, or so").decode()
WHEN = "Fri, 02 Jan 2026 03:04:05 GMT"
XML = {"content-type": "application/xml"}


class CloudServer(FaultyServer):
    """One bucket; a listing comes in pages of `page` objects."""

    def __init__(self, page: int = 1000) -> None:
        super().__init__()
        self.blocks: dict[str, bytes] = {}
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.page = page

    def put(self, key: str, content: bytes, kind: str = "text/plain") -> None:
        self.objects[key] = content, kind

    def is_for_bytes(self, asked: Asked) -> bool:
        return asked.method == "GET" and "range" in asked.headers

    def reply(self, asked: Asked) -> Reply:
        bucket, _, key = asked.path.removeprefix(self.account)[1:].partition("/")
        if not self.is_signed(asked):
            return failure(403, "AuthenticationFailed")
        if bucket != BUCKET:
            return failure(404, self.no_bucket)
        if not key:
            return self.listing(asked)
        if asked.method == "PUT":
            return self.keep(asked, key)
        if asked.method == "DELETE" and key in self.objects:
            del self.objects[key]
            return Reply(204)
        if key not in self.objects:
            return failure(404, self.no_object)
        content, kind = self.objects[key]
        return ranged(asked, content, {"content-type": kind, **self.told(content)})

    def found(self, asked: Asked, token: str, after: str) -> tuple[list[str], str]:
        """The keys of one page, and the token of the next."""
        start = asked.query.get(token, "")
        keys = sorted(self.objects)
        keys = [each for each in keys if each.startswith(asked.query.get("prefix", ""))]
        keys = [each for each in keys if each >= start and self.is_behind(each, asked, after)]
        return keys[: self.page], (keys[self.page :] or [""])[0]

    def is_behind(self, key: str, asked: Asked, after: str) -> bool:
        return key > asked.query.get(after, "")

    def keep(self, asked: Asked, key: str) -> Reply:
        """Take an object whole."""
        self.put(key, asked.body)
        told = self.told(asked.body)
        return Reply(self.created, {"etag": told["etag"], "last-modified": WHEN})

    account = ""
    created = 200
    no_bucket = "NoSuchBucket"
    no_object = "NoSuchKey"

    @property
    def endpoint(self) -> str:
        return self.url + self.account

    def is_signed(self, asked: Asked) -> bool:
        raise NotImplementedError

    def listing(self, asked: Asked) -> Reply:
        raise NotImplementedError

    def told(self, content: bytes) -> dict[str, str]:
        raise NotImplementedError


class GoogleServer(CloudServer):
    """The XML API of Google Cloud Storage."""

    def is_signed(self, asked: Asked) -> bool:
        if signature := asked.query.get("X-Goog-Signature"):
            return is_signed_by_account(asked, bytes.fromhex(signature))
        return asked.headers.get("authorization", "").startswith("Bearer ")

    def told(self, content: bytes) -> dict[str, str]:
        return {
            "etag": f'"{hashlib.md5(content).hexdigest()}"',  # noqa: S324
            "last-modified": WHEN,
            "x-goog-generation": "1767323045000000",
            "x-goog-hash": f"md5={md5(content)}",
        }

    def listing(self, asked: Asked) -> Reply:
        keys, following = self.found(asked, "continuation-token", "start-after")
        inside = "".join(
            f"<Contents><Key>{escape(key)}</Key><Generation>1767323045000000</Generation>"
            "<MetaGeneration>1</MetaGeneration><LastModified>2026-01-02T03:04:05.000Z"
            f"</LastModified><ETag>{self.told(self.objects[key][0])['etag']}</ETag>"
            f"<Size>{len(self.objects[key][0])}</Size></Contents>"
            for key in keys
        )
        more = f"<NextContinuationToken>{escape(following)}</NextContinuationToken>"
        return Reply(
            200,
            XML,
            "<?xml version='1.0' encoding='UTF-8'?>"
            "<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
            f"<Name>{BUCKET}</Name><Prefix/><KeyCount>{len(keys)}</KeyCount>"
            f"<IsTruncated>{'true' if following else 'false'}</IsTruncated>"
            f"{more if following else ''}{inside}</ListBucketResult>".encode(),
        )


class AzureServer(CloudServer):
    """List Blobs and Get Blob of Azure, whose tags have no quotes in a listing."""

    created = 201
    account = f"/{ACCOUNT}"  # in the path, where it is not in the name of the server
    no_bucket = "ContainerNotFound"
    no_object = "BlobNotFound"

    def is_behind(self, key: str, asked: Asked, after: str) -> bool:
        return key >= asked.query.get(after, "")

    def keep(self, asked: Asked, key: str) -> Reply:
        """Take an object whole, a block of one, or the list of its blocks."""
        if asked.query.get("comp") == "block":
            self.blocks[asked.query["blockid"]] = asked.body
            return Reply(201)
        if asked.query.get("comp") == "blocklist":
            names = re.findall(rb"<Uncommitted>(.*?)</Uncommitted>", asked.body)
            whole = b"".join(self.blocks.pop(name.decode()) for name in names)
            return super().keep(replace(asked, body=whole), key)
        return super().keep(asked, key)

    def is_signed(self, asked: Asked) -> bool:
        if asked.query.get("sig"):
            return asked.query["sig"] == sas(asked)
        return asked.headers.get("authorization", "").startswith(f"SharedKey {ACCOUNT}:")

    def told(self, content: bytes) -> dict[str, str]:
        return {
            "etag": f'"{self.tag(content)}"',
            "last-modified": WHEN,
            "x-ms-blob-type": "BlockBlob",
            "x-ms-blob-content-md5": md5(content),
        }

    def tag(self, content: bytes) -> str:
        return "0x8D" + hashlib.sha256(content).hexdigest()[:12].upper()

    def batch(self, asked: Asked) -> Reply:
        """Delete the objects that a request names one by one, and say what became of each."""
        answers = []
        found = re.findall(rb"Content-ID: (\d+).*?DELETE (\S+)", asked.body, re.DOTALL | re.I)
        for number, path in found:
            key = unquote(urlsplit(path.decode()).path).split(f"/{BUCKET}/", 1)[1]
            status = "404 Not Found\r\nx-ms-error-code: BlobNotFound"
            if self.objects.pop(key, ("", ""))[1]:
                status = "202 Accepted"
            answers.append(
                "--batch\r\nContent-Type: application/http\r\n"
                f"Content-ID: {number.decode()}\r\n\r\nHTTP/1.1 {status}\r\n\r\n"
            )
        body = "".join([*answers, "--batch--\r\n"]).encode()
        return Reply(202, {"content-type": "multipart/mixed; boundary=batch"}, body)

    def listing(self, asked: Asked) -> Reply:
        if asked.query.get("comp") == "batch":
            return self.batch(asked)
        keys, following = self.found(asked, "marker", "startFrom")
        inside = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Creation-Time>{WHEN}</Creation-Time>"
            f"<Last-Modified>{WHEN}</Last-Modified><Etag>{self.tag(self.objects[key][0])}</Etag>"
            f"<Content-Length>{len(self.objects[key][0])}</Content-Length>"
            f"<Content-Type>{self.objects[key][1]}</Content-Type>"
            f"<Content-MD5>{md5(self.objects[key][0])}</Content-MD5>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            for key in keys
        )
        return Reply(
            200,
            XML,
            '<?xml version="1.0" encoding="utf-8"?>'
            f'<EnumerationResults ServiceEndpoint="{self.url}/" ContainerName="{BUCKET}">'
            f"<Blobs>{inside}</Blobs><NextMarker>{escape(following)}</NextMarker>"
            "</EnumerationResults>".encode(),
        )


def failure(status: int, code: str) -> Reply:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
    return Reply(status, {**XML, "x-ms-error-code": code}, body.encode())


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content).digest()).decode()  # noqa: S324


def sas(asked: Asked) -> str:
    """Sign the permission that a URL of Azure carries, as its server does."""
    given = asked.query
    fields = [
        given["sp"], given["st"], given["se"], f"/blob{asked.path}", "", "", "",
        given["sv"], given["sr"], "", "", "", given.get("rscd", ""), "", "", given.get("rsct", ""),
    ]  # fmt: skip
    made = hmac.new(base64.b64decode(KEY), "\n".join(fields).encode(), "sha256").digest()
    return base64.b64encode(made).decode()


def is_signed_by_account(asked: Asked, signature: bytes) -> bool:
    """Check a signature of the kind GOOG4-RSA-SHA256."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    given = {k: v for k, v in asked.query.items() if k != "X-Goog-Signature"}
    query = "&".join(f"{quote(k, safe='~')}={quote(given[k], safe='~')}" for k in sorted(given))
    path = quote(asked.path, safe="/~")
    # The client signs for the real server, whatever address it is told to reach it by.
    canonical = f"{asked.method}\n{path}\n{query}\nhost:{GOOGLE}\n\nhost\nUNSIGNED-PAYLOAD"
    scope = given["X-Goog-Credential"].partition("/")[2]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"GOOG4-RSA-SHA256\n{given['X-Goog-Date']}\n{scope}\n{digest}"
    try:
        public = account_key().public_key()
        public.verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


@cache
def account_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(65537, 2048)


def service_account(folder: Path) -> Path:
    """Write the file of a service account of Google."""
    from cryptography.hazmat.primitives import serialization

    key = account_key().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    known = {"type": "service_account", "client_email": "reader@letters.example"}
    known |= {"private_key_id": "one", "private_key": key.decode()}
    path = folder / "account.json"
    path.write_text(json.dumps(known))
    return path
