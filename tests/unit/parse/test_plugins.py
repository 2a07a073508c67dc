"""Parsers of plugins: which one reads a file, what they may yield, and what is said otherwise."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import Page, Permanent, parser, plugins
from quire.demo import samples
from quire.errors import BadInput, Unreadable
from quire.model.contracts import MARK
from quire.model.pages import PageFailure
from quire.parse import file_type, formats, plugin_parser
from quire.parse.parser import ReadOptions
from tests.documents import put

EPUB = "application/epub+zip"


def book(says: str) -> bytes:
    """A book begins with its type, which is not compressed."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:
        made.writestr("mimetype", says)
        made.writestr("1.xhtml", "one")
    return written.getvalue()


BOOK = book(EPUB)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    plugins.equip(plugins.Registry())


def equip(*functions: Any) -> None:
    registry = plugins.Registry()
    for each in functions:
        registry.put(getattr(each, MARK))
    plugins.equip(registry)


def reading(made: Any, *types: str, **more: Any) -> Any:
    """A parser that returns what it is given."""
    return parser(*(types or (EPUB,)), **{"name": "made", **more})(lambda path: made)


def read(path: Path, media_type: str, name: str = "auto") -> list[Any]:
    return list(formats.read(path, media_type, ReadOptions(name), 1, 1))


def test_a_type_that_plugins_read_before_us_is_read_by_the_plugin(tmp_path: Path):
    path = put(tmp_path, "a.epub", BOOK)
    with pytest.raises(Unreadable, match="its list of contents is missing"):
        formats.inspect(path, EPUB)
    equip(reading(["one", Page(2, "two", label="chapter 2")]))
    assert formats.inspect(path, EPUB)[1:3] == ("whole", 1)
    assert read(path, EPUB) == [Page(1, "one"), Page(2, "two", label="chapter 2")]


def test_our_own_reader_is_used_unless_another_is_named(tmp_path: Path):
    equip(reading(["theirs"], "text/plain"))
    path = put(tmp_path, "a.txt", b"ours")
    assert [page.text for page in read(path, "text/plain")] == ["ours"]
    assert [page.text for page in read(path, "text/plain", "made")] == ["theirs"]
    assert [page.text for page in read(path, "text/markdown", "made")] == ["ours"]


def test_name_and_version_are_part_of_the_recipe():
    options = ReadOptions("made")
    recipes = []
    for more in ({}, {"version": 2}, {"name": "other"}):
        equip(reading([], file_type.PDF, **more))
        recipes.append(formats.recipe(file_type.PDF, ReadOptions(more.get("name", "made"))))  # type: ignore[arg-type]
    equip(reading([], "text/plain"))
    recipes.append(formats.recipe(file_type.PDF, options))
    assert [each.get("plugin") for each in recipes] == ["made", "made", "other", None]
    assert [each["version"] for each in recipes[:3]] == [1, 2, 1]
    assert recipes[3] == formats.recipe(file_type.PDF, ReadOptions())


def test_a_parser_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path):
    equip(reading([]), reading([], name="other"))
    path = put(tmp_path, "a.txt", b"text")
    said = r"'mode' is not known here. Known: auto, made, other"
    with pytest.raises(BadInput, match=said):
        formats.inspect(path, "text/plain", ReadOptions("mode"))
    with pytest.raises(BadInput, match=said):
        formats.recipe("text/plain", ReadOptions("mode"))


def test_the_names_of_parsers_are_values_of_the_corpus_setting():
    equip(reading([]), reading([], name="other"))
    assert plugin_parser.names() == ["made", "other"]
    for name in plugin_parser.names():
        plugin_parser.require(name)


def test_two_plugins_for_a_type_must_be_chosen_from(tmp_path: Path):
    equip(reading(["one"]), reading(["two"], name="other"))
    path = put(tmp_path, "a.epub", BOOK)
    with pytest.raises(BadInput, match="parser=made or parser=other"):
        formats.inspect(path, EPUB)
    assert [page.text for page in read(path, EPUB, "other")] == ["two"]


def test_the_plugins_are_among_what_is_supported(tmp_path: Path):
    equip(reading([]))
    with pytest.raises(Unreadable, match=r"supported: PDF, .*made \(application/epub\+zip\)"):
        formats.inspect(put(tmp_path, "a", b"x"), "application/x-odd")


def test_a_name_decides_only_where_the_bytes_do_not(tmp_path: Path):
    equip(reading([], suffixes=(".epub", ".rst", ".pdf", ".csv")))
    cases = [
        ("a.epub", samples.zipped({"a": "b"}), EPUB),
        ("A.RST", b"Title\n=====\n", EPUB),
        ("a.rst", b"\0\1\2" * 9, EPUB),
        ("a.rst", samples.pdf([samples.text_page(["x"])]), file_type.PDF),
        ("a.pdf", samples.docx(["x"]), file_type.DOCX),
        ("a.csv", b"a,b\n1,2\n", "text/csv"),
        ("a.zip", samples.zipped({"a": "b"}), "application/zip"),
        ("a.epub", b"", file_type.UNKNOWN),
    ]
    for name, content, expected in cases:
        assert file_type.detect(put(tmp_path, "blob", content), name) == expected, name


def test_the_longest_suffix_that_fits_decides(tmp_path: Path):
    equip(
        reading([], "text/x-one", suffixes=(".xml",)),
        reading([], "text/x-two", suffixes=(".tei.xml",), name="two"),
    )
    path = put(tmp_path, "blob", b"<TEI/>")
    assert file_type.detect(path, "a.xml") == "text/x-one"
    assert file_type.detect(path, "a.tei.xml") == "text/x-two"


def test_a_book_is_known_by_what_it_says_itself(tmp_path: Path):
    assert file_type.detect(put(tmp_path, "blob", BOOK), "a.zip") == EPUB
    odt = "application/vnd.oasis.opendocument.text"
    assert file_type.detect(put(tmp_path, "b", book(odt)), "b") == odt
    assert file_type.detect(put(tmp_path, "c", book("application/pdf")), "c") == "application/zip"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returned nothing"),
        ("text", "returned an object of type str"),
        (7, "returned an object of type int"),
        ([b"bytes"], "yielded an object of type bytes"),
        ([Page(0, "x")], r"yielded page 0 \(expected 1\)"),
        ([Page(1, "x"), Page(3, "y")], r"yielded page 3 \(expected 2\)"),
        ([Page(1, None)], "gave page 1 nothing"),  # type: ignore[arg-type]
        ([Page(1, "x", via="magic")], "via is text or ocr or none"),
    ],
)
def test_what_is_no_page_is_said_to_be_the_plugins_fault(made: Any, said: str, tmp_path: Path):
    equip(reading(made))
    with pytest.raises(Unreadable, match=f"parser made {said}|{said}"):
        read(put(tmp_path, "a.epub", BOOK), EPUB)


def test_one_page_may_fail_alone(tmp_path: Path):
    pages = [Page(1, "one"), PageFailure(2, "page 2: torn"), Page(3, "three")]
    equip(reading(pages))
    assert read(put(tmp_path, "a.epub", BOOK), EPUB) == pages


def test_a_file_that_the_plugin_refuses_is_unreadable(tmp_path: Path):
    @parser(EPUB, name="strict")
    def strict(path: Path) -> Iterator[str]:
        yield "one"
        raise Permanent(f"{path.name}: chapter 2 is encrypted.")

    equip(strict)
    with pytest.raises(Unreadable, match=r"^a.epub: chapter 2 is encrypted.$"):
        read(put(tmp_path, "a.epub", BOOK), EPUB)


def test_an_empty_file_never_reaches_a_plugin(tmp_path: Path):
    equip(reading(["text"]))
    with pytest.raises(Unreadable, match="is empty"):
        formats.inspect(put(tmp_path, "a.epub", b""), EPUB)
