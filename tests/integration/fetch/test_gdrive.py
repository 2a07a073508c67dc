"""Google Drive through Google's own client: folders, shared drives, shortcuts, exports, tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from quire.errors import BadInput, Damaged, FetchFailed, Gone, SourceRefused
from quire.fetch.items import Item, ListingPage, Source, SourceOptions
from quire.fetch.sources.registry import open_source
from tests import servers
from tests.integration.fetch.fetch_places import FakeTime, authorized_user, options
from tests.servers import FOLDER, SHORTCUT, DriveFile, DriveServer

TOP = "top-folder-id"
TEXT = "text/plain"
OWN = "application/vnd.google-apps."


@pytest.fixture
def server() -> Iterator[DriveServer]:
    with DriveServer(page=2) as made:
        made.put(DriveFile(TOP, "Top", FOLDER, "root"))
        yield made


@pytest.fixture
def chosen(server: DriveServer, tmp_path: Path) -> SourceOptions:
    return options(FakeTime(), endpoint=server.url, credentials=authorized_user(server, tmp_path))


def tree(server: DriveServer) -> None:
    """Seven files in three folders."""
    for number in range(3):
        name = f"t{number}.txt"
        server.put(DriveFile(f"top-file-{number}", name, TEXT, TOP, name.encode()))
    server.put(DriveFile("sub-folder-id", "Sub", FOLDER, TOP))
    server.put(DriveFile("deep-folder-id", "Deep", FOLDER, "sub-folder-id"))
    for number in range(3):
        parent = "sub-folder-id"
        server.put(DriveFile(f"sub-file-{number}", f"s{number}.txt", TEXT, parent, b"sub"))
    server.put(DriveFile("deep-file-0", "d.txt", TEXT, "deep-folder-id", b"deep"))


def everything(source: Source, after: str | None = None) -> list[ListingPage]:
    return list(source.pages(after))


def items(pages: list[ListingPage]) -> list[Item]:
    return [item for page in pages for item in page.items]


def test_a_folder_is_listed_with_all_below_it(server: DriveServer, chosen: SourceOptions):
    tree(server)
    found = items(everything(open_source(f"gdrive:{TOP}", chosen)))
    assert sorted((each.folder, each.name) for each in found) == [
        ("", "t0.txt"),
        ("", "t1.txt"),
        ("", "t2.txt"),
        ("Sub", "s0.txt"),
        ("Sub", "s1.txt"),
        ("Sub", "s2.txt"),
        ("Sub/Deep", "d.txt"),
    ]
    first = next(each for each in found if each.name == "t0.txt")
    assert first.uri == "gdrive:top-file-0"
    assert first.size == 6
    assert first.media_type == TEXT
    assert first.md5 and first.sha256 and first.version and first.mtime


def test_a_listing_goes_on_from_every_cursor(server: DriveServer, chosen: SourceOptions):
    tree(server)
    pages = everything(open_source(f"gdrive:{TOP}", chosen))
    assert len(pages) > 4
    for number, page in enumerate(pages):
        rest = everything(open_source(f"gdrive:{TOP}", chosen), page.cursor)
        assert items(rest) == items(pages[number + 1 :])


def test_a_page_token_that_is_too_old_begins_its_folder_again(
    server: DriveServer, chosen: SourceOptions
):
    tree(server)
    first = next(iter(open_source(f"gdrive:{TOP}", chosen).pages(None)))
    state = json.loads(first.cursor)
    state["open"][-1][3] = "expired-0"
    rest = everything(open_source(f"gdrive:{TOP}", chosen), json.dumps(state))
    names = {each.name for each in [*first.items, *items(rest)]}
    assert names == {"t0.txt", "t1.txt", "t2.txt", "s0.txt", "s1.txt", "s2.txt", "d.txt"}


def test_shared_drives_are_listed_and_read(
    server: DriveServer, chosen: SourceOptions, tmp_path: Path
):
    server.put(DriveFile("shared-folder", "Team", FOLDER, "drive-1", drive="drive-1"))
    shared = DriveFile("shared-file-1", "a.txt", TEXT, "shared-folder", b"team", drive="drive-1")
    server.put(shared)
    source = open_source("gdrive:shared-folder", chosen)
    [item] = items(everything(source))
    source.fetch(item, tmp_path / "p", lambda got, total: None, lambda: None)
    assert (tmp_path / "p").read_bytes() == b"team"


def test_a_shortcut_does_not_lead_out_of_a_folder(server: DriveServer, chosen: SourceOptions):
    tree(server)
    server.put(DriveFile("secret-file-0", "o.txt", TEXT, "root", b"not of this folder"))
    server.put(DriveFile("shortcut-out", "in", SHORTCUT, TOP, target="secret-file-0"))
    pages = everything(open_source(f"gdrive:{TOP}", chosen))
    assert "gdrive:secret-file-0" not in {each.uri for each in items(pages)}
    [skipped] = [skip for page in pages for skip in page.skipped]
    assert skipped.uri == "gdrive:shortcut-out" and "shortcut" in skipped.reason


def test_shortcuts_are_resolved_on_request_and_do_not_turn_in_circles(
    server: DriveServer, chosen: SourceOptions
):
    chosen = replace(chosen, follow_links=True)
    tree(server)
    server.put(DriveFile("other-folder-id", "Other", FOLDER, "root"))
    server.put(DriveFile("other-file-0", "o.txt", TEXT, "other-folder-id", b"other"))
    for name, parent, target in [
        ("loop", "deep-folder-id", TOP),
        ("out", TOP, "other-folder-id"),
        ("again", "sub-folder-id", "other-folder-id"),
        ("back", "other-folder-id", "other-folder-id"),
        ("broken", TOP, "missing-id"),
    ]:
        server.put(DriveFile(f"shortcut-{name}", name, SHORTCUT, parent, target=target))
    file = DriveFile("shortcut-file", "renamed", SHORTCUT, TOP, target="other-file-0")
    server.put(file)
    pages = everything(open_source(f"gdrive:{TOP}", chosen))
    found = [(each.folder, each.name, each.uri) for each in items(pages)]
    assert ("out", "o.txt", "gdrive:other-file-0") in found
    assert ("", "renamed", "gdrive:other-file-0") in found
    assert len(found) == 9
    reasons = {skip.uri: skip.reason for page in pages for skip in page.skipped}
    assert "listed already" in reasons["gdrive:shortcut-loop"]
    assert "listed already" in reasons["gdrive:shortcut-again"]
    assert "listed already" in reasons["gdrive:shortcut-back"]
    assert "does not exist" in reasons["gdrive:shortcut-broken"]


def test_google_formats_are_exported_and_say_what_was_checked(
    server: DriveServer, chosen: SourceOptions, tmp_path: Path
):
    sheet_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    server.put(DriveFile("a-document-id", "Plan", OWN + "document", TOP))
    server.put(DriveFile("a-sheet-id-00", "Sums.xlsx", OWN + "spreadsheet", TOP))
    server.put(DriveFile("a-form-id-000", "Questions", OWN + "form", TOP))
    server.exports["a-document-id", "application/pdf"] = b"%PDF-1.7 plan"
    server.exports["a-sheet-id-00", sheet_type] = b"PK\x03\x04 sums"
    source = open_source(f"gdrive:{TOP}", chosen)
    pages = everything(source)
    found = {each.name: each for each in items(pages)}
    assert sorted(found) == ["Plan.pdf", "Sums.xlsx"]
    assert any("form" in skip.reason for page in pages for skip in page.skipped)
    for name, content in (("Plan.pdf", b"%PDF-1.7 plan"), ("Sums.xlsx", b"PK\x03\x04 sums")):
        part = tmp_path / name
        fetched = source.fetch(found[name], part, lambda got, total: None, lambda: None)
        assert part.read_bytes() == content
        assert fetched.checked == "signature only"
    server.exports["a-document-id", "application/pdf"] = b"an error page"
    with pytest.raises(Damaged, match="%PDF-"):
        source.fetch(found["Plan.pdf"], tmp_path / "p", lambda got, total: None, lambda: None)
    server.exports.clear()
    with pytest.raises(SourceRefused, match="too large to be exported"):
        source.fetch(found["Plan.pdf"], tmp_path / "p", lambda got, total: None, lambda: None)


def test_an_export_that_is_cut_is_made_again(
    server: DriveServer, chosen: SourceOptions, tmp_path: Path
):
    server.put(DriveFile("a-document-id", "Plan", OWN + "document", TOP))
    server.exports["a-document-id", "application/pdf"] = b"%PDF-1.7 plan"
    source = open_source("gdrive:a-document-id", chosen)
    [item] = items(everything(source))
    server.faults = [servers.cut(5)]
    source.fetch(item, tmp_path / "p", lambda got, total: None, lambda: None)
    assert (tmp_path / "p").read_bytes() == b"%PDF-1.7 plan"


def test_a_token_that_expires_is_renewed_once(
    server: DriveServer, chosen: SourceOptions, tmp_path: Path
):
    server.put(DriveFile("one-file-id", "a.txt", TEXT, TOP, b"bytes"))
    source = open_source("gdrive:one-file-id", chosen)
    [item] = items(everything(source))
    server.expire_token()
    source.fetch(item, tmp_path / "p", lambda got, total: None, lambda: None)
    assert (tmp_path / "p").read_bytes() == b"bytes"
    server.always = servers.answer(401)
    server.asked.clear()
    with pytest.raises(SourceRefused, match="access denied"):
        source.fetch(item, tmp_path / "p", lambda got, total: None, lambda: None)
    assert len(server.bytes_asked()) == 2


def test_a_token_that_expires_between_two_pages_is_renewed(
    server: DriveServer, chosen: SourceOptions
):
    tree(server)
    pages = open_source(f"gdrive:{TOP}", chosen).pages(None)
    found = next(pages).items
    server.expire_token()
    assert len(found) + len(items(list(pages))) == 7


def test_a_listing_bears_rate_limits(server: DriveServer, chosen: SourceOptions):
    tree(server)
    server.is_for_bytes = lambda asked: asked.path != "/token"  # type: ignore[method-assign]
    server.faults = [servers.rate_limit(), servers.answer(503), servers.cut(3)]
    time = FakeTime()
    ours = replace(chosen, clock=time.clock, wait=time.wait)
    assert len(items(everything(open_source(f"gdrive:{TOP}", ours)))) == 7
    assert time.waited == pytest.approx(2 + 4 + 8)
    server.always = servers.rate_limit()
    with pytest.raises(FetchFailed, match="6 times in a row"):
        everything(open_source(f"gdrive:{TOP}", ours))


def test_patterns_choose_and_spare_whole_folders(server: DriveServer, chosen: SourceOptions):
    tree(server)
    ours = replace(chosen, include=("t*.txt", "d.txt"), exclude=("Sub/Deep", "t1*"))
    found = items(everything(open_source(f"gdrive:{TOP}", ours)))
    assert [each.name for each in found] == ["t0.txt", "t2.txt"]
    asked = [each.query.get("q", "") for each in server.asked]
    assert not any("deep-folder-id" in each for each in asked)


def test_a_file_that_may_not_be_downloaded_is_left_out(server: DriveServer, chosen: SourceOptions):
    file = DriveFile("locked-file-id", "a.txt", TEXT, TOP, b"x", can_download=False)
    server.put(file)
    [page] = everything(open_source(f"gdrive:{TOP}", chosen))
    assert page.items == []
    assert "its owner disabled downloads" in page.skipped[0].reason


def test_a_service_account_signs_in(server: DriveServer, chosen: SourceOptions, tmp_path: Path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    path = tmp_path / "robot.json"
    known = {"type": "service_account", "client_email": "robot@example.com", "private_key": text}
    path.write_text(json.dumps({**known, "token_uri": server.url + "/token"}))
    tree(server)
    source = open_source(f"gdrive:{TOP}", replace(chosen, credentials=path))
    assert len(items(everything(source))) == 7
    asked = next(each for each in server.asked if each.path == "/token")
    assert b"grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer" in asked.body


def test_what_is_missing_is_said(server: DriveServer, chosen: SourceOptions, tmp_path: Path):
    url = f"gdrive:{TOP}"
    [said] = open_source(url, replace(chosen, credentials=None)).doctor()
    assert "QUIRE_GDRIVE_CREDENTIALS" in said
    [said] = open_source(url, replace(chosen, credentials=tmp_path / "none.json")).doctor()
    assert "the credentials file does not exist" in said
    (tmp_path / "bad.json").write_text("{}")
    [said] = open_source(url, replace(chosen, credentials=tmp_path / "bad.json")).doctor()
    assert "not a service account" in said
    [said] = open_source(url, chosen).doctor()
    assert said == f"gdrive:{TOP}: the folder 'Top' can be listed."
    with pytest.raises(Gone):
        everything(open_source("gdrive:not-there-id", chosen))
    with pytest.raises(BadInput, match="not a Google Drive file or folder"):
        open_source("gdrive:")
    private = replace(chosen, allow_networks=())
    with pytest.raises(SourceRefused, match="private address"):
        everything(open_source(url, private))


def test_credentials_that_were_withdrawn_are_refused_with_the_remedy(
    server: DriveServer, chosen: SourceOptions
):
    server.is_for_bytes = lambda asked: asked.path == "/token"  # type: ignore[method-assign]
    body = b'{"error": "invalid_grant", "error_description": "Token has been revoked."}'
    server.always = servers.answer(400, body, content_type="application/json")
    with pytest.raises(SourceRefused, match="Renew the credentials file"):
        everything(open_source(f"gdrive:{TOP}", chosen))
