"""Files and folders as a source: order, cursor, what is left out, files that move while read."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import BadInput, FetchFailed, Gone, SourceRefused, Stopped
from quire.fetch.items import PAGE_ITEMS, Fetched, Item, SourceOptions
from quire.fetch.names import file_path
from quire.fetch.permission import Forbidden
from quire.fetch.sources.registry import open_source
from quire.fetch.transfer.part_file import disk_errors
from tests.disk import files_up_to

QUIET = SourceOptions()
FOLLOWING = SourceOptions(follow_links=True)


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))


def listed(
    place: str | Path, options: SourceOptions = QUIET, after: str | None = None
) -> list[Item]:
    return [item for page in open_source(str(place), options).pages(after) for item in page.items]


def paths(items: list[Item]) -> list[str]:
    return [f"{each.folder}/{each.name}" if each.folder else each.name for each in items]


def reasons(place: Path, options: SourceOptions = QUIET) -> dict[str, str]:
    pages = open_source(str(place), options).pages(None)
    return {file_path(each.uri).name: each.reason for page in pages for each in page.skipped}


def fetch(place: Path, part: Path, options: SourceOptions = QUIET) -> Fetched:
    source = open_source(str(place), options)
    [item] = [item for page in source.pages(None) for item in page.items]
    return source.fetch(item, part, lambda got, total: None, lambda: None)


def test_a_folder_is_listed_with_all_below_it(tmp_path: Path):
    make(tmp_path, "b.txt", "a/z.txt", "a/b/c.txt", "a.txt", ".hidden", "x.part", "~$lock.docx")
    make(tmp_path, ".git/config")
    items = listed(tmp_path)
    assert paths(items) == ["a/b/c.txt", "a/z.txt", "a.txt", "b.txt"]
    assert items[0].uri == f"file://{tmp_path}/a/b/c.txt"
    assert items[0].size == len("a/b/c.txt")
    assert items[0].mtime == (tmp_path / "a/b/c.txt").stat().st_mtime
    assert ".hidden" in paths(listed(tmp_path, SourceOptions(hidden=True)))


def test_a_file_alone_is_a_source(tmp_path: Path):
    make(tmp_path, ".named.txt")
    assert paths(listed(tmp_path / ".named.txt")) == [".named.txt"]
    assert paths(listed(f"file://{tmp_path}/.named.txt")) == [".named.txt"]


def test_patterns_choose(tmp_path: Path):
    make(tmp_path, "a.pdf", "sub/b.PDF", "sub/c.txt", "drafts/d.pdf", "drafts/deep/e.pdf")
    assert paths(listed(tmp_path, SourceOptions(include=("*.pdf",), exclude=("drafts",)))) == [
        "a.pdf",
        "sub/b.PDF",
    ]
    assert paths(listed(f"{tmp_path}/*.pdf")) == ["a.pdf"]
    assert paths(listed(f"{tmp_path}/dr*/**/*.pdf")) == ["drafts/d.pdf", "drafts/deep/e.pdf"]
    make(tmp_path, "odd[1].txt")
    assert paths(listed(f"{tmp_path}/odd[1].txt")) == ["odd[1].txt"]


@settings(max_examples=30, deadline=None)
@given(st.sets(st.text("ab-./", min_size=1, max_size=6), min_size=1, max_size=12), st.integers(0))
def test_a_listing_goes_on_behind_any_cursor(names: set[str], number: int):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder, *[f"n{part}" for part in name.split("/")])
            if path.parent.is_dir() or not any(p.is_file() for p in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.is_dir():
                    path.write_text("x")
        whole = listed(folder)
        cut = number % len(whole)
        from urllib.parse import quote_from_bytes

        last = file_path(whole[cut].uri)
        cursor = quote_from_bytes(os.fsencode(str(last.relative_to(folder))))
        assert listed(folder, after=cursor) == whole[cut + 1 :]


def test_pages_are_bounded_and_their_cursors_continue(tmp_path: Path):
    for number in range(PAGE_ITEMS + 5):
        (tmp_path / f"{number:05d}.txt").touch()
    first, second = open_source(str(tmp_path)).pages(None)
    assert (len(first.items), len(second.items)) == (PAGE_ITEMS, 5)
    assert listed(tmp_path, after=first.cursor) == second.items
    assert listed(tmp_path, after=second.cursor) == []


def test_hostile_names_are_listed_and_read(tmp_path: Path):
    names = [b"new\nline.txt", b"\xff\xfe.txt", "文書 ü.txt".encode(), b"%2e%2e?#.txt", b"l" * 255]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name)
    source = open_source(str(tmp_path))
    [page] = source.pages(None)
    assert len(page.items) == len(names)
    read = set()
    for number, item in enumerate(page.items):
        assert item.uri.isascii()
        item.name.encode()
        assert "\n" not in item.name
        part = tmp_path.parent / f"{number}.part"
        source.fetch(item, part, lambda got, total: None, lambda: None)
        read.add(part.read_bytes())
    assert read == set(names)
    assert listed(tmp_path, after=page.cursor) == []


def test_links_are_followed_on_request_without_turning_in_circles(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    make(root, "a/one.txt")
    make(outside, "two.txt", "deep/three.txt")
    (root / "a" / "loop").symlink_to(root)
    (root / "again").symlink_to(root / "a")
    (root / "out").symlink_to(outside)
    (outside / "back").symlink_to(root)
    (outside / "further").symlink_to(tmp_path.parent)
    (root / "nowhere").symlink_to(tmp_path / "missing")
    (root / "self").symlink_to(root / "self")
    (root / "file.txt").symlink_to(outside / "two.txt")
    followed = ["a/one.txt", "file.txt", "out/deep/three.txt", "out/two.txt"]
    assert paths(listed(root, FOLLOWING)) == followed
    found = reasons(root, FOLLOWING)
    assert "at its own path" in found["loop"]
    assert "at its own path" in found["again"]
    assert "at its own path" in found["back"]
    assert "parent folder" in found["further"]
    assert "dangling" in found["nowhere"]
    assert "dangling" in found["self"]


def test_a_link_does_not_lead_out_of_a_folder(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    make(root, "a.txt")
    make(outside, "secret.txt")
    (root / "report.txt").symlink_to(outside / "secret.txt")
    (root / "more").symlink_to(outside)
    assert paths(listed(root)) == ["a.txt"]
    found = reasons(root)
    assert set(found) == {"report.txt", "more"}
    assert all("not followed without --follow-links" in each for each in found.values())
    # What the job names itself is opened wherever it leads.
    assert paths(listed(root / "more")) == ["secret.txt"]
    assert paths(listed(root / "report.txt")) == ["report.txt"]
    assert fetch(root / "report.txt", tmp_path / "part").size == len("secret.txt")


@pytest.mark.parametrize("swapped", ["deep/a.txt", "deep"])
def test_a_link_put_in_place_of_what_was_listed_is_not_opened(tmp_path: Path, swapped: str):
    root, outside = tmp_path / "root", tmp_path / "outside"
    make(root, "deep/a.txt")
    make(outside, "a.txt")
    source = open_source(str(root), QUIET)
    [item] = [item for page in source.pages(None) for item in page.items]
    (root / swapped).rename(tmp_path / "away")
    target = outside if swapped == "deep" else outside / "a.txt"
    (root / swapped).symlink_to(target)
    with pytest.raises(SourceRefused, match="a symbolic link stands where it was listed"):
        source.fetch(item, tmp_path / "part", lambda got, total: None, lambda: None)
    assert not (tmp_path / "part").exists()


def test_an_item_that_is_not_below_its_source_is_not_opened(tmp_path: Path):
    make(tmp_path, "root/a.txt", "b.txt")
    source = open_source(str(tmp_path / "root"), QUIET)
    item = Item(f"file://{tmp_path}/b.txt", "b.txt")
    with pytest.raises(SourceRefused, match="is not below"):
        source.fetch(item, tmp_path / "part", lambda got, total: None, lambda: None)


def test_what_is_forbidden_is_left_out_of_a_folder_and_refused_by_name(tmp_path: Path):
    make(tmp_path, "root/a.txt", "root/den/quire.db", "root/key.json")
    root = tmp_path / "root"
    own = tuple(os.path.realpath(root / name) for name in ("den", "key.json"))
    options = SourceOptions(forbidden=Forbidden(own))
    assert paths(listed(root, options)) == ["a.txt"]
    assert set(reasons(root, options)) == {"den", "key.json"}
    (tmp_path / "alias").symlink_to(root / "den")
    for name in ("root/den", "root/den/quire.db", "root/key.json", "alias"):
        with pytest.raises(SourceRefused, match="belongs to Quire itself"):
            listed(tmp_path / name, options)


def test_what_is_no_file_is_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make(tmp_path, "a.txt")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        found = reasons(tmp_path)
    assert paths(listed(tmp_path)) == ["a.txt"]
    assert "a named pipe" in found["pipe"]
    assert "a socket" in found["socket"]


def test_a_folder_that_vanishes_while_it_is_listed_costs_that_folder(tmp_path: Path):
    make(tmp_path, "a/x.txt", "b/y.txt")
    for number in range(PAGE_ITEMS):
        (tmp_path / "a" / f"{number}.txt").touch()
    pages = open_source(str(tmp_path)).pages(None)
    next(pages)
    (tmp_path / "b" / "y.txt").unlink()
    (tmp_path / "b").rmdir()
    [rest] = pages
    assert [each.reason for each in rest.skipped] == [
        "folder cannot be read (No such file or directory)"
    ]
    assert len(rest.items) == 1


def test_a_file_is_copied_and_hashed(tmp_path: Path):
    make(tmp_path, "a.bin")
    content = os.urandom(3_000_000)
    (tmp_path / "a.bin").write_bytes(content)
    part = tmp_path / "parts" / "one.part"
    fetched = fetch(tmp_path / "a.bin", part)
    assert fetched.sha256 == hashlib.sha256(content).hexdigest()
    assert fetched.size == len(content)
    assert part.read_bytes() == content


def test_a_part_of_another_run_is_replaced(tmp_path: Path):
    make(tmp_path, "a.txt")
    part = tmp_path / "one.part"
    part.write_bytes(b"left by another")
    fetch(tmp_path / "a.txt", part)
    assert part.read_bytes() == b"a.txt"


def test_a_file_that_grows_while_it_is_read_is_tried_again(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 100)
    source = open_source(str(path))
    [page] = source.pages(None)

    def progress(got: int, total: int | None) -> None:
        with path.open("ab") as file:
            file.write(b"more") if got < 200 else None

    with pytest.raises(FetchFailed, match="changed while it was read"):
        source.fetch(page.items[0], tmp_path / "one.part", progress, lambda: None)
    assert not (tmp_path / "one.part").exists()


def test_a_file_that_is_replaced_while_it_is_read_is_tried_again(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 100)
    stat = path.stat()
    source = open_source(str(path))
    [page] = source.pages(None)

    def progress(got: int, total: int | None) -> None:
        other = tmp_path / "other"
        other.write_bytes(b"y" * 100)
        os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        other.replace(path)

    with pytest.raises(FetchFailed, match="changed while it was read"):
        source.fetch(page.items[0], tmp_path / "one.part", progress, lambda: None)


def test_a_file_that_vanishes_is_gone(tmp_path: Path):
    make(tmp_path, "a.txt")
    source = open_source(str(tmp_path / "a.txt"))
    [page] = source.pages(None)

    def progress(got: int, total: int | None) -> None:
        (tmp_path / "a.txt").unlink()

    part = tmp_path / "one.part"
    with pytest.raises(Gone, match=r"a\.txt: the file no longer exists"):
        source.fetch(page.items[0], part, progress, lambda: None)
    assert not part.exists()
    with pytest.raises(Gone):
        source.fetch(page.items[0], part, progress, lambda: None)


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path):
    make(tmp_path, "a.txt")
    source = open_source(str(tmp_path / "a.txt"))
    [page] = source.pages(None)
    (tmp_path / "a.txt").unlink()
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(SourceRefused, match="is a named pipe"):
        source.fetch(page.items[0], tmp_path / "p", lambda got, total: None, lambda: None)


def test_a_file_above_the_limit_is_refused(tmp_path: Path):
    make(tmp_path, "a.txt")
    with pytest.raises(SourceRefused, match=r"at most 4 bytes, got 5 or more"):
        fetch(tmp_path / "a.txt", tmp_path / "p", SourceOptions(max_bytes=4))


def test_a_full_disk_is_said_in_words(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)
    part = tmp_path / "parts" / "one.part"
    with (
        files_up_to(2_000_000),
        pytest.raises(FetchFailed, match=r"cannot be written to .*free some space"),
    ):
        fetch(tmp_path / "a.bin", part)
    assert list(part.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_errors_of_the_disk_have_words(tmp_path: Path, number: int, reason: str):
    part = tmp_path / "one.part"
    part.write_bytes(b"some")
    with pytest.raises(FetchFailed, match=reason), disk_errors("a.txt", part):
        raise OSError(number, os.strerror(number))
    assert part.exists() is (number not in (errno.ENOSPC, errno.EDQUOT))


def test_a_stop_ends_a_copy(tmp_path: Path):
    make(tmp_path, "a.txt")
    source = open_source(str(tmp_path / "a.txt"))
    [page] = source.pages(None)

    def check() -> None:
        raise Stopped("stopped")

    with pytest.raises(Stopped):
        source.fetch(page.items[0], tmp_path / "p", lambda got, total: None, check)


def test_a_place_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(Gone, match="there is no such file or folder"):
        listed(tmp_path / "missing")
    assert "no such file" in open_source(str(tmp_path / "missing")).doctor()[0]


def test_an_unknown_kind_of_source_lists_the_known_ones():
    for url in ("ftp://host/file", "foo:bar"):
        with pytest.raises(BadInput, match=r"Known: a path, file://, https://.*gdrive:, s3://"):
            open_source(url)
    with pytest.raises(BadInput, match="no path or URL"):
        open_source("")


def test_a_name_with_a_colon_is_a_file_where_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make(tmp_path, "note:1.txt")
    monkeypatch.chdir(tmp_path)
    assert paths(listed("note:1.txt")) == ["note:1.txt"]


def test_the_doctor_says_what_it_found(tmp_path: Path):
    make(tmp_path, "a.txt", "b.txt")
    os.mkfifo(tmp_path / "pipe")
    said = open_source(str(tmp_path)).doctor()
    assert said[0] == f"{tmp_path}: can be listed; files found: 2."
    assert "a named pipe" in said[1]
