"""Sources of plugins: they list and yield bytes; order, retries, resume and checks are ours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire import Item, Transient, plugins, source
from quire.errors import FetchFailed, Gone, Permanent, SourceRefused, Stopped
from quire.fetch.items import Fetched, Limits, SourceOptions
from quire.fetch.sources import plugin as plugin_source
from quire.fetch.sources import registry as sources
from quire.fetch.transfer.part_file import note_path
from quire.model.contracts import MARK

TEXT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(TEXT).hexdigest()
ITEM = Item("attic:box/a.bin", "a.bin", len(TEXT), sha256=SHA256)


class Attic:
    """What a test puts there; `script` has what each call of read() does, in order."""

    found: list[Any]
    script: list[Callable[[int], Iterator[bytes]]]
    starts: list[int]
    waits: list[float]

    def items(self, url: str) -> Iterator[Any]:
        yield from self.found

    def read(self, item: Item, start: int) -> Iterator[bytes]:
        self.starts.append(start)
        act = self.script.pop(0) if self.script else whole
        yield from act(start)


def whole(start: int) -> Iterator[bytes]:
    for at in range(start, len(TEXT), 1000):
        yield TEXT[at : at + 1000]


def cut(after: int, error: BaseException) -> Callable[[int], Iterator[bytes]]:
    """Bytes up to a place, then an error."""

    def act(start: int) -> Iterator[bytes]:
        yield TEXT[start:after]
        raise error

    return act


@pytest.fixture
def attic() -> Iterator[type[Attic]]:
    made = type("Ours", (Attic,), {"found": [], "script": [], "starts": [], "waits": []})
    registry = plugins.Registry()
    registry.put(getattr(source("attic")(made), MARK))
    plugins.equip(registry)
    yield made
    plugins.equip(plugins.Registry())


def opened(attic: type[Attic], **options: Any) -> Any:
    limits = Limits(chunk_bytes=2_500, delays=(1.0, 2.0))
    chosen = SourceOptions(limits=limits, wait=attic.waits.append)
    return sources.open_source("attic:box", replace(chosen, **options))


def fetch(
    attic: type[Attic], folder: Path, item: Item = ITEM, check: Any = lambda: None, **options: Any
) -> Fetched:
    fetched: Fetched = opened(attic, **options).fetch(
        item, folder / "a.part", lambda got, total: None, check
    )
    return fetched


def test_items_are_listed_by_their_uris_and_go_on_behind_a_cursor(
    attic: type[Attic], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plugin_source, "PAGE_ITEMS", 2)
    names = ["e", "b", "d", "a", "c", "b"]
    attic.found = [Item(f"attic:{name}", name, 1) for name in names]
    pages = list(opened(attic).pages(None))
    assert [[item.name for item in page.items] for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    attic.found.reverse()
    rest = list(opened(attic).pages(pages[0].cursor))
    assert rest == pages[1:]
    assert list(opened(attic).pages("attic:e")) == []


def test_globs_and_safe_names_are_ours(attic: type[Attic]):
    attic.found = [
        Item("attic:1", "a.pdf", folder="drafts"),
        Item("attic:2", "../b.pdf", folder="final"),
        Item("attic:3", "c.txt"),
    ]
    [page] = opened(attic, include=("*.pdf",), exclude=("drafts/**",)).pages(None)
    assert [(item.uri, item.name) for item in page.items] == [("attic:2", ".._b.pdf")]


def test_what_is_no_item_or_has_a_foreign_name_is_refused(attic: type[Attic]):
    for wrong, said in (
        ({"uri": "attic:1"}, "type dict"),
        (Item("file:///a", "a"), "every URI must start"),
    ):
        attic.found = [wrong]
        with pytest.raises(Permanent, match=said):
            list(opened(attic).pages(None))


def test_an_unknown_source_names_those_of_plugins(attic: type[Attic]):
    with pytest.raises(Permanent, match="az://, attic:"):
        sources.open_source("cellar://x")


def test_bytes_are_counted_hashed_and_checked(attic: type[Attic], tmp_path: Path):
    item = ITEM._replace(md5=hashlib.md5(TEXT).hexdigest(), media_type="application/x-bin")  # noqa: S324
    told: list[tuple[int, int | None]] = []
    fetched = opened(attic).fetch(item, tmp_path / "p", lambda *at: told.append(at), lambda: None)
    assert fetched[:2] == (len(TEXT), SHA256)
    assert fetched.checked == "size, md5, sha256"
    assert (tmp_path / "p").read_bytes() == TEXT
    assert told[-1] == (len(TEXT), len(TEXT))


def test_the_next_try_is_counted_down_while_it_is_waited_for(attic: type[Attic], tmp_path: Path):
    attic.script = [cut(3_000, ConnectionResetError("reset")), cut(3_500, Transient("busy"))]
    said: list[str] = []
    fetch(attic, tmp_path, say=said.append)
    assert [text.partition(":")[0] for text in said] == [
        "next try in 1 s",
        "trying again",
        "next try in 2 s",
        "next try in 1 s",
        "trying again",
    ]
    assert "reset" in said[0] and "busy" in said[2]


def test_a_broken_read_goes_on_where_it_was_if_the_whole_can_be_checked(
    attic: type[Attic], tmp_path: Path
):
    attic.script = [cut(3_000, ConnectionResetError("reset")), cut(3_500, Transient("busy"))]
    fetched = fetch(attic, tmp_path)
    assert attic.starts == [0, 3_000, 3_500]
    assert sum(attic.waits) == pytest.approx(3.0)
    assert (fetched.size, fetched.resumed_from) == (len(TEXT), 0)


def test_without_a_hash_a_broken_read_begins_again(attic: type[Attic], tmp_path: Path):
    attic.script = [cut(3_000, TimeoutError("late"))]
    fetched = fetch(attic, tmp_path, ITEM._replace(sha256=None, etag="1"))
    assert attic.starts == [0, 0]
    assert fetched.sha256 == SHA256


def test_a_later_run_goes_on_behind_what_an_earlier_one_left(attic: type[Attic], tmp_path: Path):
    attic.script = [cut(6_000, OSError("gone")) for _ in range(3)]
    with pytest.raises(FetchFailed, match=r"3 times in a row. 6,000 bytes have arrived"):
        fetch(attic, tmp_path)
    attic.starts.clear()
    fetched = fetch(attic, tmp_path)
    assert attic.starts == [6_000]
    assert (fetched.sha256, fetched.resumed_from) == (SHA256, 6_000)
    assert not note_path(tmp_path / "a.part").exists()


def test_what_is_left_of_another_state_of_the_file_is_not_used(attic: type[Attic], tmp_path: Path):
    attic.script = [cut(6_000, OSError("gone")) for _ in range(3)]
    with pytest.raises(FetchFailed):
        fetch(attic, tmp_path, ITEM._replace(sha256="0" * 64))
    attic.starts.clear()
    assert fetch(attic, tmp_path).resumed_from == 0
    assert attic.starts == [0]


def test_a_plugin_that_ignores_where_to_start_is_found_out(attic: type[Attic], tmp_path: Path):
    attic.script = [cut(3_000, OSError("gone")), lambda start: whole(0)]
    with pytest.raises(FetchFailed, match="size differs"):
        fetch(attic, tmp_path)
    assert fetch(attic, tmp_path).sha256 == SHA256


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (ITEM._replace(size=5), "size differs"),
        (ITEM._replace(size=99_999), "size differs"),
        (ITEM._replace(sha256="0" * 64), "checksum differs"),
        (ITEM._replace(md5="0" * 32), "checksum differs"),
    ],
)
def test_other_bytes_than_listed_are_refused_and_removed(
    attic: type[Attic], tmp_path: Path, item: Item, said: str
):
    with pytest.raises(FetchFailed, match=said):
        fetch(attic, tmp_path, item)
    assert list(tmp_path.iterdir()) == []


def test_a_file_over_the_limit_is_refused_before_or_while_it_is_read(
    attic: type[Attic], tmp_path: Path
):
    for item in (ITEM, ITEM._replace(size=None)):
        with pytest.raises(SourceRefused, match="larger than the limit"):
            fetch(attic, tmp_path, item, max_bytes=5_000)
    assert attic.starts == [0]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (FileNotFoundError("a.bin"), Gone, "not found"),
        (PermissionError("key"), SourceRefused, "access denied"),
        (Permanent("the shelf is empty"), Permanent, "the shelf is empty"),
        (KeyError("x"), FetchFailed, "its source failed .KeyError: 'x'."),
    ],
)
def test_other_errors_end_the_read_at_once(
    attic: type[Attic], tmp_path: Path, error: Exception, kind: type[Exception], said: str
):
    attic.script = [cut(3_000, error)]
    with pytest.raises(kind, match=said):
        fetch(attic, tmp_path)
    assert (attic.starts, attic.waits) == ([0], [])


def test_what_is_not_bytes_is_the_plugins_fault(attic: type[Attic], tmp_path: Path):
    attic.script = [lambda start: iter(["text"])]  # type: ignore[list-item]
    with pytest.raises(Permanent, match="yielded an object of type str"):
        fetch(attic, tmp_path)


def test_a_stop_is_obeyed_between_two_pieces(attic: type[Attic], tmp_path: Path):
    calls = iter([None, None, Stopped("stopped")])

    def check() -> None:
        if error := next(calls):
            raise error

    with pytest.raises(Stopped):
        fetch(attic, tmp_path, check=check)
    assert (tmp_path / "a.part").stat().st_size == 2_000


def test_a_listing_that_fails_says_so(attic: type[Attic]):
    def fail(self: Any, url: str) -> Any:
        raise attic.error  # type: ignore[attr-defined]

    attic.items = fail  # type: ignore[method-assign]
    for error, kind in (
        (ConnectionError("no route"), FetchFailed),
        (Transient("busy", retry_after=9), FetchFailed),
        (FileNotFoundError("box"), Gone),
        (ValueError("odd"), FetchFailed),
    ):
        attic.error = error  # type: ignore[attr-defined]
        with pytest.raises(kind, match="attic:box") as caught:
            list(opened(attic).pages(None))
        assert opened(attic).doctor() == [str(caught.value)]


def test_the_doctor_reads_the_first_file(attic: type[Attic]):
    attic.found = [ITEM, Item("attic:b", "b")]
    well = ["attic:box: can be listed; files found: 2.", "b: can be read."]
    assert opened(attic).doctor() == well
    attic.script = [lambda start: (_ for _ in ()).throw(OSError("no"))]
    assert opened(attic).doctor()[1] == "b: cannot be read (OSError: no)."
