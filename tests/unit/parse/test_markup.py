"""HTML, plain text and messages."""

from __future__ import annotations

import time
from email.message import EmailMessage
from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Attachment, Page
from quire.parse import file_type, formats, mail, markup, quoted
from quire.parse.parser import ReadOptions
from tests.blocks import read, shown
from tests.documents import put

MAIL = "message/rfc822"


def text_of(path: Path, kind: str) -> str:
    assert formats.inspect(path, kind)[1:3] == ("whole", 1)
    [page] = formats.read(path, kind, ReadOptions(), 1, 1)
    assert isinstance(page, Page)
    return page.text


def test_html_is_what_a_reader_sees(tmp_path: Path):
    page = b"""<html><head><title>Tides</title><style>p {x: y}</style>
      <script>if (a < b) { document.write("<p>no</p>") }</script></head>
      <body><h1>Tides &amp; depth</h1><p>Spring
      tides &eacute; <b>rise</b></p><ul><li>one<li>two</ul><!-- hidden -->
      <table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>
      <pre>kept
  apart</pre></body></html>"""
    assert text_of(put(tmp_path, "a.html", page), "text/html") == (
        "Tides\n\nTides & depth\n\nSpring tides é rise\n\none\ntwo\n\na b\nc\n\nkept\n  apart"
    )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>open <b>tags <script>var x = 1", "open tags"),
        ("<svg><svg></svg>x</svg>seen", "seen"),
        ("a &lt;b&gt; &#0; &#xD800; c", "a <b> \ufffd \ufffd c"),
        ("<" * 5000, None),
        ("<div>" * 5000 + "deep", "deep"),
    ],
)
def test_broken_html_is_read_as_far_as_it_goes(page: str, expected: str | None):
    found = markup.html_text(page)
    assert expected is None or found == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_plain_text_is_read_in_its_encoding(encoding: str, tmp_path: Path):
    content = "Grüße,\r\nzweite Zeile\n".encode(encoding)
    assert text_of(put(tmp_path, "a.txt", content), "text/plain") == "Grüße,\nzweite Zeile\n"


SENTENCES = {
    "cp1250": "Zażółć gęślą jaźń, powiedział król i poszedł spać.",
    "cp1251": "Река поднялась ночью и унесла деревянный мост.",
    "koi8-r": "Река поднялась ночью и унесла деревянный мост.",
    "cp1253": "Το ποτάμι ανέβηκε τη νύχτα και πήρε τη γέφυρα.",
    "shift_jis": "川は夜のうちに増水し、木の橋を流した。",
    "iso2022_jp": "川は夜のうちに増水し、木の橋を流した。",
    "euc_kr": "강물이 밤새 불어나 나무다리를 쓸어 갔다.",
    "gb18030": "河水在夜里上涨，冲走了木桥。我们三天无法过河。",
    "cp1252": "La rivière est montée dans la nuit : le pont a été emporté.",
}


@pytest.mark.parametrize("charset", SENTENCES)
def test_an_encoding_that_nothing_declares_is_detected(charset: str, tmp_path: Path):
    content = SENTENCES[charset].encode(charset)
    assert text_of(put(tmp_path, "a.txt", content), "text/plain") == SENTENCES[charset]


@pytest.mark.parametrize(
    "text", ["Preis: 5 €", "Déjà vu à la crème brûlée", "it’s “fine”", "20 °C at noon", "größe"]
)
def test_few_accents_are_not_taken_for_another_alphabet(text: str, tmp_path: Path):
    assert text_of(put(tmp_path, "a.txt", text.encode("cp1252")), "text/plain") == text


def test_the_encoding_that_a_page_declares_is_used(tmp_path: Path):
    page = '<html><meta charset="windows-1251"><p>Привет'.encode("cp1251")
    assert text_of(put(tmp_path, "a.html", page), "text/html") == "Привет"


def test_text_is_bounded(tmp_path: Path):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(51 << 20)
    with pytest.raises(Unreadable, match=r"bytes of text \(at most 52,428,800\)"):
        formats.inspect(path, "text/plain")


def message(*, html: bool = False) -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"] = "Ida Brandt <ida@example.org>", "all@example.org"
    made["Subject"] = "Zölle auf Kupfer"
    if not html:
        made.set_content("The duty is due.\n")
    made.add_alternative("<p>The <b>duty</b> is due.</p>", subtype="html")
    return made


@pytest.mark.parametrize("html", [False, True])
def test_a_message_is_its_headers_and_its_text(html: bool, tmp_path: Path):
    path = put(tmp_path, "a.eml", message(html=html).as_bytes())
    assert file_type.detect(path) == MAIL
    assert text_of(path, MAIL) == (
        "From: Ida Brandt <ida@example.org>\nTo: all@example.org\nSubject: Zölle auf Kupfer\n\n"
        "The duty is due."
    )


REPLY = """Dear Otto,

agreed. See below:

On Monday, 2 March 2026 at 10:00, Otto Lund
<otto@example.org> wrote:
> Is the duty due?
>> Older words.

Yes, on Friday.

Ida

----- Original Message -----
From: Otto
Earlier still.
"""


def test_what_a_message_quotes_is_a_page_of_its_own(tmp_path: Path):
    made = EmailMessage()
    made["From"], made["Subject"] = "Ida <ida@example.org>", "Re: Duty"
    made.set_content(REPLY)
    own, quoted = read(put(tmp_path, "a.eml", made.as_bytes()), MAIL)
    assert shown(own) == [
        ("paragraph", "From: Ida <ida@example.org>"), ("heading", 1, "Re: Duty"),
        ("paragraph", "Dear Otto,"), ("paragraph", "agreed. See below:"),
        ("paragraph", "Yes, on Friday."), ("paragraph", "Ida"),
    ]  # fmt: skip
    assert quoted.label == "quoted text"
    assert quoted.text.split("\n")[-2:] == ["From: Otto", "Earlier still."]
    assert "wrote:\nIs the duty due?\nOlder words." in quoted.text


@pytest.mark.parametrize("piece", ["> x\n", "> x\n\n", "On a b c wrote:\n> x\n", "x\n> x\n", "-"])
def test_a_message_of_many_quotations_is_split_in_linear_time(piece: str):
    def cost(count: int) -> float:
        began = time.process_time()
        quoted.split_text("y" * count + "\n" + piece * count)
        return time.process_time() - began

    small = min(cost(2_000) for _ in range(3))
    assert min(cost(32_000) for _ in range(2)) < max(64 * small, 0.3)


TABLE = "<table><tr><th>Day<th>Metres<tr><td>Mon<td>3.4</table>"


@pytest.mark.parametrize("text", ["", "The tides: Mon 3.4\n"])
@pytest.mark.parametrize(
    "older",
    [
        '<div class="gmail_quote"><div>On Sunday Otto wrote:<div>Older</div></div></div>Below',
        "<div class='x moz-cite-prefix'>On Sunday Otto wrote:</div><blockquote type=cite><p>Older"
        "<blockquote>older yet</blockquote></blockquote>Below",
        "Below<hr><div id='divRplyFwdMsg'>From: Otto</div><p>On Sunday Otto wrote:</p>Older",
    ],
)
def test_the_table_and_the_quotation_of_a_message_in_html_are_found(
    older: str, text: str, tmp_path: Path
):
    made = EmailMessage()
    made["From"], made["Subject"] = "Ida <ida@example.org>", "Tides"
    made.set_content(text)
    made.add_alternative(f"<h2>Plan</h2>{TABLE}<p>Mine</p>{older}", subtype="html")
    own, before = read(put(tmp_path, "a.eml", made.as_bytes()), MAIL)
    assert shown(own)[1:] == [
        ("heading", 1, "Tides"), ("heading", 2, "Plan"),
        ("table", 1, [["Day", "Metres"], ["Mon", "3.4"]]),
        ("paragraph", "Mine"), ("paragraph", "Below"),
    ]  # fmt: skip
    assert "Older" in before.text and "Below" not in before.text


def test_parts_that_are_no_alternatives_are_all_read(tmp_path: Path):
    made = EmailMessage()
    made["From"], made["Subject"] = "Ida <ida@example.org>", "Tides"
    made.set_content("First part\n")
    made.make_mixed()
    for part in ("<p>Second part</p>", "<p>Third part</p>"):
        inner = EmailMessage()
        inner.set_content(part, subtype="html")
        made.attach(inner)
    [page] = read(put(tmp_path, "a.eml", made.as_bytes()), MAIL)
    assert page.text.endswith("First part\n\nSecond part\n\nThird part")


@pytest.mark.parametrize(
    "piece", ["<blockquote type=cite>", '<div class="gmail_quote"></div>', "<p id='", "<p id=x "]
)
def test_hostile_quotations_in_html_are_split_in_linear_time(piece: str):
    def cost(count: int) -> float:
        began = time.process_time()
        own, older = quoted.split_html(piece * count)
        assert len(own) + len(older) == count * len(piece)
        return time.process_time() - began

    small = min(cost(2_000) for _ in range(3))
    assert min(cost(32_000) for _ in range(2)) < max(64 * small, 0.3)


def test_a_message_of_quotations_only_is_its_own_text(tmp_path: Path):
    made = EmailMessage()
    made["From"], made["Subject"] = "Ida <ida@example.org>", "Fwd: Duty"
    made.set_content("> All of it\n> is quoted.\n")
    [page] = read(put(tmp_path, "a.eml", made.as_bytes()), MAIL)
    assert page.text.endswith("Subject: Fwd: Duty\n\nAll of it\nis quoted.")


def test_attachments_come_with_their_names_and_bytes(tmp_path: Path):
    made, inner = message(), message()
    made.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="Größe.pdf")
    made.add_attachment("a,b\n", subtype="csv", filename="../../etc/pass wd.csv")
    made.add_attachment(inner)
    path = put(tmp_path, "a.eml", made.as_bytes())
    first, second, third = mail.attachments(path)
    assert first == Attachment("Größe.pdf", b"%PDF-1.4")
    assert second == Attachment("pass wd.csv", b"a,b\n")
    assert third.name == "Zölle auf Kupfer.eml"
    assert b"The duty is due." in third.content
    assert "a,b" not in text_of(path, MAIL)


@pytest.mark.parametrize(
    "content",
    [
        b"From: a\nSubject: =?none?b?!!!?=\nContent-Type: text/plain; charset=none\n\nbody \xe4",
        b"From: a\nSubject: b\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nbody",
        b"From: a\nSubject: b\nContent-Type: multipart/mixed\n\nbody",
        b"From: a\nSubject: b\nContent-Transfer-Encoding: base64\n\n!!!body",
        b"From: a\nSubject: b\nContent-Type: message/rfc822\n\nbody",
    ],
)
def test_a_broken_message_is_read_as_far_as_it_goes(content: bytes, tmp_path: Path):
    path = put(tmp_path, "a.eml", content)
    assert text_of(path, MAIL).startswith("From: a\nSubject: ")
    mail.attachments(path)


def test_the_samples_are_the_same_at_every_run(tmp_path: Path):
    first, second = samples.make(tmp_path / "a"), samples.make(tmp_path / "b")
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_samples_are_read_except_two(tmp_path: Path):
    read: dict[str, int | str] = {}
    for path in samples.make(tmp_path):
        try:
            read[path.name] = formats.inspect(path, file_type.detect(path)).length
        except Unreadable as error:
            read[path.name] = str(error).split(": ")[1][:20]
    assert read["handbook.pdf"] == 36
    assert read["protected.pdf"] == "is protected by a pa"
    assert read["broken.pdf"] == "is damaged or cut of"
    assert len(read) == 9
