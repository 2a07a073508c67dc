"""Word files and presentations, whole and hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Page, PageFailure
from quire.parse import file_type, formats
from quire.parse.office import ooxml
from quire.parse.parser import ReadOptions
from tests import documents
from tests.blocks import shown, spans
from tests.documents import put

SLIDES = [["Tides", "Spring tides & neap tides"], ["Cargo", "Barrels"]]


def test_a_word_file_is_one_page(tmp_path: Path):
    path = put(
        tmp_path, "a.docx", samples.docx(["Tides & depth", "The sill is <two> metres deep."])
    )
    assert formats.inspect(path, file_type.DOCX)[1:3] == ("whole", 1)
    [page] = formats.read(path, file_type.DOCX, ReadOptions(), 1, 1)
    assert isinstance(page, Page)
    assert page.text.split("\n\n") == ["Tides & depth", "The sill is <two> metres deep."]


BODY = (
    '<w:document xmlns:w="urn:w" xmlns:mc="urn:mc"><w:body>'
    "<w:p><w:r><w:t>Before</w:t><w:tab/><w:t xml:space='preserve'> the tab</w:t></w:r>"
    "<mc:AlternateContent><mc:Choice><w:p><w:r><w:t>In a box</w:t></w:r></w:p></mc:Choice>"
    "<mc:Fallback><w:p><w:r><w:t>In a box</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent>"
    "<w:r><w:delText>gone</w:delText><w:t>, after</w:t></w:r></w:p>"
    "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Vessel</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc>"
    "<w:tc><w:p><w:r><w:t>Tonnes</w:t></w:r></w:p></w:tc></w:tr>"
    "<w:tr><w:tc><w:p><w:r><w:t>Tern</w:t></w:r></w:p><w:p><w:r><w:t>(lost)</w:t></w:r></w:p>"
    "</w:tc></w:tr></w:tbl></w:body></w:document>"
)


def test_tables_boxes_notes_and_headers_of_a_word_file_are_read_once(tmp_path: Path):
    content = documents.changed(samples.docx(["x"]), "word/document.xml", BODY)
    note = '<w:x xmlns:w="urn:w"><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:x>'
    for part, text in (("header1", "Top"), ("header2", "Top"), ("footnotes", "A note")):
        content = documents.changed(content, f"word/{part}.xml", note.format(text))
    [page] = formats.read(put(tmp_path, "a.docx", content), file_type.DOCX, ReadOptions(), 1, 1)
    assert isinstance(page, Page)
    assert page.text.split("\n\n") == [
        "In a box",
        "Before\t the tab, after",
        "Vessel\t\tTonnes\nTern (lost)",
        "A note",
        "Top",
    ]


def test_each_slide_is_a_page_with_a_key(tmp_path: Path):
    path = put(tmp_path, "a.pptx", samples.pptx(SLIDES))
    before = formats.inspect(path, file_type.PPTX)
    [second] = formats.read(path, file_type.PPTX, ReadOptions(), 2, 2)
    assert isinstance(second, Page)
    assert (second.number, second.text, second.label) == (2, "Cargo\nBarrels", "slide 2")
    after = formats.inspect(
        put(tmp_path, "a.pptx", samples.pptx([["New"], *SLIDES])), file_type.PPTX
    )
    assert (before.unit, before.length, after.length) == ("page", 2, 3)
    assert before.keys is not None
    assert after.keys is not None
    assert after.keys[1:] == before.keys


def test_a_slide_that_cannot_be_read_fails_alone(tmp_path: Path):
    content = samples.pptx(SLIDES)
    path = put(tmp_path, "a.pptx", documents.changed(content, "ppt/slides/slide1.xml", "<p:sld><"))
    assert formats.inspect(path, file_type.PPTX).length == 2
    first, second = formats.read(path, file_type.PPTX, ReadOptions(), 1, 2)
    assert isinstance(first, PageFailure)
    assert isinstance(second, Page)
    assert second.text == "Cargo\nBarrels"


def slide(content: str, folder: Path, notes: str = "") -> Page:
    head = '<p:sld xmlns:p="urn:p" xmlns:a="urn:a">'
    changed = documents.changed(
        samples.pptx(SLIDES), "ppt/slides/slide1.xml", f"{head}{content}</p:sld>"
    )
    if notes:
        related = (
            '<Relationships><Relationship Id="r1" Type="x/notesSlide" Target="../n.xml"/>'
            "</Relationships>"
        )
        changed = documents.changed(changed, "ppt/slides/_rels/slide1.xml.rels", related)
        changed = documents.changed(changed, "ppt/n.xml", f"{head}{notes}</p:sld>")
    changed = documents.with_picture(changed, len(content) // 50)
    [page] = formats.read(put(folder, "a.pptx", changed), file_type.PPTX, ReadOptions(), 1, 1)
    assert isinstance(page, Page), page
    return page


def shape(kind: str | None, *paragraphs: str) -> str:
    ph = "" if kind is None else f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>'
    body = "".join(
        text if text.startswith("<") else f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>"
        for text in paragraphs
    )
    return f"<p:sp>{ph}<p:txBody>{body}</p:txBody></p:sp>"


def tc(text: str, attributes: str = "") -> str:
    body = f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" if text else "<a:p/>"
    return f"<a:tc {attributes}><a:txBody>{body}</a:txBody></a:tc>"


def test_a_slide_has_its_title_bullets_table_and_notes_as_blocks(tmp_path: Path):
    deeper = '<a:p><a:pPr lvl="1"/><a:r><a:t>Neap</a:t></a:r></a:p>'
    plain = "<a:p><a:pPr><a:buNone/></a:pPr><a:r><a:t>Said once</a:t></a:r></a:p>"
    pointed = '<a:p><a:pPr><a:buChar char="-"/></a:pPr><a:r><a:t>Marked</a:t></a:r></a:p>'
    table = (
        "<a:tbl><a:tblPr firstRow='1'/><a:tr>" + tc("Port") + tc("Tonnes", "gridSpan='2'")
        + tc("", "hMerge='1'") + "</a:tr><a:tr>" + tc("Hull", "rowSpan='2'") + tc("1") + tc("2")
        + "</a:tr><a:tr>" + tc("", "vMerge='1'") + tc("3") + tc("4") + "</a:tr></a:tbl>"
    )  # fmt: skip
    page = slide(
        shape("title", "Tides") + shape("body", "Spring", deeper, plain)
        + shape(None, "A box", pointed) + table + shape("sldNum", "7"),
        tmp_path,
        shape("body", "Speak slowly") + shape("sldNum", "7"),
    )  # fmt: skip
    grid = [["Port", "Tonnes", ""], ["Hull", "1", "2"], ["", "3", "4"]]
    assert shown(page) == [
        ("heading", 1, "Tides"), ("list_item", 1, "Spring"), ("list_item", 2, "Neap"),
        ("paragraph", "Said once"), ("paragraph", "A box"), ("list_item", 1, "Marked"),
        ("table", 1, grid), ("heading", 2, "Notes"), ("paragraph", "Speak slowly"),
    ]  # fmt: skip
    assert spans(page) == [(0, 1, 1, 2), (1, 0, 2, 1)]
    assert page.text.endswith("Port\tTonnes\nHull\t1\t2\n\t3\t4\n\nNotes\nSpeak slowly")


def test_a_slide_of_merged_cells_everywhere_loses_no_text(tmp_path: Path):
    row = "<a:tr>" + tc("x", "gridSpan='99999999999' rowSpan='-1'") * 40 + "</a:tr>"
    page = slide("<a:tbl>" + row * 40 + "<a:tr/></a:tbl>" + shape("title", "end"), tmp_path)
    assert page.text.count("x") == 1600
    assert shown(page)[-1] == ("heading", 1, "end")


HOSTILE = {
    "much.docx": (documents.bomb(samples.docx(["x"]), 40 << 20), file_type.DOCX, "times its size"),
    "entities.docx": (documents.docx_with_entities(), file_type.DOCX, "declares entities"),
    "cut.docx": (samples.docx(["x" * 500])[:-40], file_type.DOCX, "damaged or cut off"),
    "body.docx": (samples.zipped({"word/other.xml": "<x/>"}), file_type.DOCX, "is missing"),
    "empty.pptx": (samples.pptx([]), file_type.PPTX, "no slides"),
    "cut.pptx": (samples.pptx(SLIDES)[:300], file_type.PPTX, "damaged or cut off"),
    "text.pptx": (b"not a zip file", file_type.PPTX, "damaged or cut off"),
    "locked.xlsx": (b"\xd0\xcf", "application/x-ole-encrypted", "protected by a password"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_file_is_refused_with_its_reason(name: str, tmp_path: Path):
    content, kind, reason = HOSTILE[name]
    with pytest.raises(Unreadable, match=f"{name}: .*{reason}"):
        formats.inspect(put(tmp_path, name, content), kind)


def test_an_archive_of_more_than_a_gigabyte_is_refused(tmp_path: Path):
    content = documents.bomb(samples.docx(["x"]), 1 << 20)
    # The directory at the end says how large a member is; here it says four gigabytes.
    place = content.rindex(b"PK\x01\x02")
    large = content[: place + 24] + b"\xf0\xff\xff\xff" + content[place + 28 :]
    with pytest.raises(Unreadable, match=r"would unpack to 4,09\d MiB"):
        formats.inspect(put(tmp_path, "a.docx", large), file_type.DOCX)


def test_a_type_that_nothing_reads_lists_those_that_are_read(tmp_path: Path):
    with pytest.raises(Unreadable, match=r"application/x-odd is not supported; supported: PDF, DO"):
        formats.inspect(put(tmp_path, "a", b"x"), "application/x-odd")


def test_stored_reuse_keys_keep_the_names_and_versions_of_parsers():
    """Another name or version reads every stored document again: change them only on purpose."""
    recipes = {kind: formats.recipe(kind, ReadOptions()) for kind in formats.FORMATS}
    names = {kind: (each["parser"], each["version"]) for kind, each in recipes.items()}
    images = ("png", "jpeg", "tiff", "webp", "gif", "bmp")
    assert names == {
        file_type.PDF: ("pdf", 3),
        file_type.DOCX: ("office", 3),
        file_type.PPTX: ("slides", 3),
        file_type.XLSX: ("tables", 4),
        file_type.XLS: ("tables", 4),
        file_type.ODS: ("tables", 4),
        file_type.ODT: ("odt", 1),
        file_type.RTF: ("rtf", 1),
        file_type.EPUB: ("epub", 1),
        file_type.MSG: ("msg", 1),
        "text/csv": ("tables", 5),
        "text/html": ("markup", 4),
        "text/markdown": ("markup", 4),
        "text/plain": ("markup", 4),
        "message/rfc822": ("mail", 4),
        **{f"image/{kind}": ("images", 2) for kind in images},
    }


def test_the_recipe_tells_what_decides_the_text():
    found = formats.recipe(file_type.DOCX, ReadOptions())
    assert (found["parser"], found["version"]) == ("office", 3)
    assert formats.recipe(file_type.PDF, ReadOptions())["library"]
    assert formats.recipe(file_type.XLSX, ReadOptions(row_size=10)) != formats.recipe(
        file_type.XLSX, ReadOptions()
    )
    assert formats.recipe(file_type.DOCX, ReadOptions(row_size=10)) == found


def test_an_element_with_too_many_attributes_or_too_deep_fails_its_slide_alone(tmp_path: Path):
    many = " ".join(f"a{n}='x'" for n in range(ooxml.MAX_ATTRIBUTES + 1))
    deep = "<a>" * (ooxml.MAX_DEPTH + 1) + "</a>" * (ooxml.MAX_DEPTH + 1)
    for content, expected in ((f"<x {many}/>", "1,001 attributes"), (deep, "nested deeper")):
        slides = documents.changed(samples.pptx(SLIDES), "ppt/slides/slide1.xml", content)
        path = put(tmp_path, "a.pptx", slides)
        first, second = formats.read(path, file_type.PPTX, ReadOptions(), 1, 2)
        assert isinstance(first, PageFailure)
        assert expected in first.error
        assert isinstance(second, Page)


def test_damaged_relationships_fail_the_slide_or_the_file_that_they_belong_to(tmp_path: Path):
    tag = f"<Relationship {'a' * 100_000}"  # took hours as a regular expression
    content = documents.changed(samples.pptx(SLIDES), "ppt/_rels/presentation.xml.rels", tag)
    with pytest.raises(Unreadable, match="is damaged"):
        formats.inspect(put(tmp_path, "a.pptx", content), file_type.PPTX)
    content = documents.changed(samples.pptx(SLIDES), "ppt/slides/_rels/slide1.xml.rels", tag)
    path = put(tmp_path, "b.pptx", content)
    assert formats.inspect(path, file_type.PPTX).length == 2
    first, second = formats.read(path, file_type.PPTX, ReadOptions(), 1, 2)
    assert isinstance(first, PageFailure)
    assert isinstance(second, Page)
