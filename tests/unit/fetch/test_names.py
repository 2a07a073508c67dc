"""Names, patterns, headers and addresses: the pure parts of fetching."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import BadInput
from quire.fetch.items import Item, SourceOptions, fingerprint
from quire.fetch.names import file_path, file_uri, printable_name, safe_name
from quire.fetch.network import is_allowed, is_public
from quire.fetch.sources.globs import matcher, path_filter
from quire.fetch.transfer import response_headers
from quire.model.places import drive_id


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("a\\b", "a_b"),
        ("a\nb\x1b[31m", "a\ufffdb\ufffd[31m"),
        ("déjà vu 文書.pdf", "déjà vu 文書.pdf"),
        ("\udcff.txt", "\ufffd.txt"),
    ],
)
def test_a_name_from_outside_is_never_a_path(name: str, safe: str):
    assert safe_name(name) == safe


@given(st.text())
def test_a_safe_name_fits_into_any_folder(name: str):
    safe = safe_name(name)
    assert safe not in ("", ".", "..")
    assert not set("/\\\0\n") & set(safe)
    assert len(safe.encode()) <= 255


def test_a_long_name_keeps_its_ending():
    safe = safe_name("ä" * 300 + ".pdf")
    assert safe.endswith("ä.pdf")
    assert len(safe.encode()) <= 255


@given(st.binary(min_size=1, max_size=40).filter(lambda raw: b"\0" not in raw))
def test_a_uri_keeps_the_exact_bytes_of_a_path(raw: bytes):
    path = "/" + raw.decode("utf-8", "surrogateescape").strip("/")
    assert str(file_path(file_uri(path))) == str(type(file_path(file_uri(path)))(path))
    assert file_uri(path).isascii()
    printable_name(path).encode()


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.pdf", "a/b/REPORT.PDF", True),
        ("*.pdf", "a.pdfx", False),
        ("/*.pdf", "a.pdf", True),
        ("/*.pdf", "a/b.pdf", False),
        ("a/*.pdf", "a/b.pdf", True),
        ("a/*.pdf", "a/b/c.pdf", False),
        ("a/**/*.pdf", "a/b/c.pdf", True),
        ("a/**/*.pdf", "a/c.pdf", True),
        ("**/x", "x", True),
        ("a/**", "a/b/c", True),
        ("node_modules", "web/node_modules", True),
        ("[ab]?.txt", "b1.txt", True),
        ("[!ab]?.txt", "b1.txt", False),
        ("a+(b).txt", "a+(b).txt", True),
        ("*.txt", "a\nb.txt", True),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool):
    found = matcher([pattern])
    assert found is not None
    assert found(path) is matches


def test_what_is_excluded_is_not_wanted_even_if_included():
    wanted = path_filter(["*.pdf", "*.txt"], ["drafts/**"])
    assert wanted("a.pdf")
    assert not wanted("drafts/a.pdf")
    assert not wanted("a.doc")


def test_a_pattern_that_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="invalid "):
        matcher(["[z-a]"])


def test_what_is_seen_of_an_item_changes_with_each_sign_of_change():
    item = Item("u", "n", 1, 2.5, "e", "m", None, "v")
    others = [item._replace(size=2), item._replace(mtime=3.0), item._replace(etag="f")]
    others += [item._replace(md5="x"), item._replace(version="w")]
    assert len({fingerprint(each) for each in [item, *others]}) == 6
    assert fingerprint(item) == fingerprint(item._replace(name="another", folder="elsewhere"))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.1"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1"),
        *("ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "198.18.0.1"),
    ],
)
def test_addresses_that_are_not_public(address: str):
    assert not is_public(address)
    assert not is_allowed(address, SourceOptions())
    assert is_allowed(address, SourceOptions(allow_private=True))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_that_are_public(address: str):
    assert is_public(address)


def test_a_network_can_be_allowed_alone():
    options = SourceOptions(allow_networks=("10.1.0.0/16", "fd00::/8"))
    assert is_allowed("10.1.2.3", options)
    assert is_allowed("fd00::1", options)
    assert not is_allowed("10.2.0.1", options)


def test_retry_after_is_seconds_or_a_date():
    assert response_headers.retry_after({"retry-after": "7"}, 0) == 7
    date = {"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}
    assert response_headers.retry_after(date, 40.0) == 60
    assert response_headers.retry_after(date, 400.0) == 0
    assert response_headers.retry_after({"retry-after": "soon"}, 0) is None
    assert response_headers.retry_after({}, 0) is None


def test_ranges():
    assert response_headers.span({"content-range": "bytes 0-9/20"}) == (0, 10, 20)
    assert response_headers.span({"content-range": "bytes 5-9/*"}) == (5, 10, None)
    assert response_headers.span({"content-range": "nonsense"}) is None
    assert response_headers.total_of_unmet_range({"content-range": "bytes */20"}) == 20


def test_digests_of_the_whole_are_read_from_the_headers_of_each_vendor():
    md5 = hashlib.md5(b"x")  # noqa: S324
    text = base64.b64encode(md5.digest()).decode()
    sha = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    google = {"x-goog-hash": f"crc32c=AAAAAA==,md5={text}"}
    assert response_headers.digests(google, whole=False) == {"md5": md5.hexdigest()}
    azure = {"x-ms-blob-content-md5": text}
    assert response_headers.digests(azure, whole=False) == {"md5": md5.hexdigest()}
    assert response_headers.digests({"content-md5": text}, whole=True) == {"md5": md5.hexdigest()}
    # In an answer to a range it is the hash of the range.
    assert response_headers.digests({"content-md5": text}, whole=False) == {}
    standard = {"repr-digest": f"sha-256=:{sha}:"}
    assert response_headers.digests(standard, whole=False) == {
        "sha256": hashlib.sha256(b"x").hexdigest()
    }
    assert response_headers.digests({"content-md5": "not base64"}, whole=True) == {}


def test_an_etag_is_an_md5_only_of_an_object_in_one_part_without_own_keys():
    md5 = hashlib.md5(b"x").hexdigest()  # noqa: S324
    assert response_headers.md5_of_etag({"etag": f'"{md5}"'}) == md5
    assert response_headers.md5_of_etag({"etag": f'"{md5}-2"'}) == ""
    kms = {"etag": f'"{md5}"', "x-amz-server-side-encryption": "aws:kms"}
    assert response_headers.md5_of_etag(kms) == ""


@pytest.mark.parametrize(
    "link",
    [
        "gdrive:1AbCdEfGhIjKlMnOp",
        "https://drive.google.com/file/d/1AbCdEfGhIjKlMnOp/view?usp=sharing",
        "https://drive.google.com/drive/folders/1AbCdEfGhIjKlMnOp?usp=drive_link",
        "https://drive.google.com/drive/u/1/folders/1AbCdEfGhIjKlMnOp",
        "https://drive.google.com/open?id=1AbCdEfGhIjKlMnOp",
        "https://drive.google.com/uc?export=download&id=1AbCdEfGhIjKlMnOp",
        "https://docs.google.com/document/d/1AbCdEfGhIjKlMnOp/edit#heading=h.1",
        "https://docs.google.com/spreadsheets/d/1AbCdEfGhIjKlMnOp/edit?gid=0",
        "https://docs.google.com/presentation/d/1AbCdEfGhIjKlMnOp/",
    ],
)
def test_links_of_google_drive(link: str):
    assert drive_id(link) == "1AbCdEfGhIjKlMnOp"


def test_other_links_are_not_of_google_drive():
    assert drive_id("https://example.com/file/d/1AbCdEfGhIjKlMnOp") is None
    assert drive_id("gdrive:") is None
    assert drive_id("https://drive.google.com/drive/my-drive") is None


_PARTS = st.lists(
    st.sampled_from(["a", "b", "*", "**", "**/", "?", "/", "[ab]", "[!a]", ".", "B"]), max_size=7
)


@given(_PARTS, st.text("aAb/.c", max_size=8))
def test_a_pattern_matches_what_its_regular_expression_would(parts: list[str], path: str):
    pattern = "".join(parts).strip("/")
    found = matcher([pattern])
    if found is None:
        return
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "[!a]": "[^a]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[!?[ab]+\]|.", pattern)
    body = "".join(
        wildcards.get(each, each if each.startswith("[") else re.escape(each)) for each in tokens
    )
    whole = body if "/" in "".join(parts).rstrip("/") else f"(?:.*/)?{body}"
    if "/" in "".join(parts).rstrip("/"):
        found = matcher(["".join(parts)])
    assert found is not None
    assert found(path) == bool(re.fullmatch(whole, path, re.IGNORECASE | re.DOTALL))


def test_the_work_of_a_pattern_grows_with_its_length_and_that_of_the_path_only():
    """As a regular expression, this one would take time of the hundredth power."""
    worst = matcher(["*a" * 100] * 20)
    assert worst is not None
    assert not worst("a" * 4000 + "b")
    assert worst("a" * 4000)
