"""Full text as it is indexed and asked for, against FTS5 and PostgreSQL's tsvector themselves."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.text.words import (
    MAX_TERMS,
    fold,
    fts5_input,
    fts5_query,
    query_terms,
    tsquery,
    tsvector_input,
)

if TYPE_CHECKING:
    from tests.copies import Copies

DOCUMENTS = [
    ("en", "The houses by the river were flooded twice. Naïve plans for a dam failed."),
    ("de", "Die Häuser am Fluss wurden überschwemmt; die Straße war gesperrt."),
    ("fr", "Les maisons près de la rivière ont été inondées. L'été suivant, l'œuvre fut achevée."),
    ("vi", "Những ngôi nhà ven sông bị ngập. Đường phố Đà Nẵng đóng cửa."),
    ("zh", "河边的房子被洪水淹没。机器学习可以预测洪水。"),
    ("ja", "川沿いの家が洪水で浸水した。データベースを調べる。"),
    ("ko", "강가의 집들이 물에 잠겼다."),
    ("th", "บ้านริมแม่น้ำถูกน้ำท่วม"),
    ("ru", "Дома у реки были затоплены."),
    ("es", "Las casas junto al río se inundaron."),
    ("", "Mixed: FTS5 索引 of e-mail a@b.example, file_name.txt and 3.14"),
]
LANGUAGES = [language for language, _ in DOCUMENTS]


@pytest.fixture(scope="module")
def base():
    connection = sqlite3.connect(":memory:")
    tokenize = "porter unicode61 remove_diacritics 2"
    connection.execute(f"CREATE VIRTUAL TABLE pages USING fts5(text, tokenize = '{tokenize}')")
    for language, text in DOCUMENTS:
        connection.execute("INSERT INTO pages VALUES (?)", [fts5_input(text, language)])
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def vectors(pg_copies: "Copies") -> Iterator[psycopg.Connection]:
    """The same documents in PostgreSQL."""
    name = pg_copies.take()
    with psycopg.connect(pg_copies.server.url_of(name), autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE said (language text, words tsvector)")
        for language, text in DOCUMENTS:
            row = (language, tsvector_input(text, language))
            connection.execute("INSERT INTO said VALUES (%s, to_tsvector('simple', %s))", row)
        yield connection
    pg_copies.drop(name)


Find = Callable[[str], set[str]]


def by_fts5(base: sqlite3.Connection, query: str) -> set[str]:
    match = fts5_query(query_terms(query, LANGUAGES))
    if not match:
        return set()
    rows = base.execute("SELECT rowid FROM pages WHERE pages MATCH ?", [match])
    return {LANGUAGES[row[0] - 1] for row in rows}


def by_tsvector(vectors: psycopg.Connection, query: str) -> set[str]:
    terms = query_terms(query, LANGUAGES, simple=True)
    match = " | ".join(filter(None, (tsquery([forms]) for forms in terms)))
    if not match:
        return set()
    asking = "SELECT language FROM said WHERE words @@ to_tsquery('simple', %s)"
    return {row[0] for row in vectors.execute(asking, [match])}


@pytest.fixture(params=["fts5", "tsvector"])
def found(request: pytest.FixtureRequest) -> Find:
    """Say which of the documents a query finds."""
    if request.param == "fts5":
        base = request.getfixturevalue("base")
        return lambda query: by_fts5(base, query)
    vectors = request.getfixturevalue("vectors")
    return lambda query: by_tsvector(vectors, query)


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("house", "en"),
        ("FLOODING", "en"),
        ("naive", "en"),
        ("haus", "de"),
        ("Hauser", "de"),
        ("Strasse", "de"),
        ("überschwemmte", "de"),
        ("maison", "fr"),
        ("rivieres", "fr"),
        ("inondée", "fr"),
        ("œuvres", "fr"),
        ("oeuvre", "fr"),
        ("da nang", "vi"),
        ("Đường", "vi"),
        ("song", "vi"),
        ("洪水", "zh"),
        ("学习", "zh"),
        ("器", "zh"),
        ("没", "zh"),
        ("机器学习", "zh"),
        ("机器学习如何预测洪水", "zh"),
        ("データ", "ja"),
        ("べる", "ja"),
        ("집들", "ko"),
        ("น้ำ", "th"),
        ("ท่วม", "th"),
        ("дом", "ru"),
        ("casa", "es"),
        ("索引", ""),
        ("file", ""),
        ('"by the river"', "en"),
        ('"am Fluss"', "de"),
        ('"机器学习可以"', "zh"),
    ],
)
def test_a_word_is_found_whatever_its_form(found, query, language):
    assert language in found(query)


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("学机", "zh"),
        ("机学习", "zh"),
        ('"river the by"', "en"),
        ("the", "de"),
        ("gata", "ja"),
        ("flute", "en"),
    ],
)
def test_what_is_not_there_is_not_found(found, query, language):
    assert language not in found(query)


def test_small_words_are_left_out_unless_nothing_else_is_asked_for():
    assert query_terms("the house of the rising sun") == [["house"], ["rising"], ["sun"]]
    assert query_terms("the who") == [["the"], ["who"]]
    assert query_terms("die Häuser", ["de"]) == [["haus"]]
    assert query_terms("die Häuser", ["en", "de"]) == [["die"], ["häuser", "haus"]]


def test_quoted_words_stay_together():
    assert query_terms('flood "river bank"') == [["river bank"], ["flood"]]
    assert query_terms('a 5" disk') == [["5"], ["disk"]]
    assert fts5_query([["river bank"], ["flood"]]) == '"river bank" OR "flood"'
    assert tsquery([["river bank"], ["flood"]]) == "('river' <-> 'bank') | 'flood'"


def test_characters_are_asked_for_alone_by_prefix():
    assert query_terms("水", ["zh"]) == [["水*"]]
    assert fts5_query([["水*"]]) == '"水" *'
    assert tsquery([["水*"]]) == "'水':*"


def test_for_postgres_english_is_stemmed_here_too():
    assert fts5_input("Houses flooded", "en") == "Houses flooded"
    assert tsvector_input("Houses flooded", "en") == "hous flood"
    assert query_terms("flooding houses", ["en"], simple=True) == [["flood"], ["hous"]]
    assert (
        tsvector_input("Straße in Đà Nẵng, 1.5 file_name", "") == "strasse in da nang 1 5 file name"
    )


def test_folding_takes_every_accent_off():
    assert [fold(word) for word in ("häuser", "straße", "đường", "œuvre", "ångström")] == [
        "hauser",
        "strasse",
        "duong",
        "oeuvre",
        "angstrom",
    ]


HOSTILE = [
    "",
    "   ",
    '"',
    '""" OR "',
    "NEAR(a b)",
    "text:*",
    "^a",
    "a* AND NOT",
    "' OR 1=1 --",
    "👩‍👩‍👧",
    "\0",
    "\ud800",
    "(((",
    "a" * 100_000,
    " ".join(f"word{n}" for n in range(10_000)),
    "漢" * 10_000,
    "\\ : & | ! <->",
    "ั",
    '"ั" "漢"',
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_is_an_error(base, query):
    for simple in (False, True):
        terms = query_terms(query, LANGUAGES, simple=simple)
        assert len(terms) <= MAX_TERMS
        assert all(form for forms in terms for form in forms)
        tsquery(terms)
        match = fts5_query(terms).encode("utf-8", "replace").decode()
        if match:
            base.execute("SELECT rowid FROM pages WHERE pages MATCH ?", [match]).fetchall()


@given(st.text(max_size=60))
def test_any_text_is_a_query(query):
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE pages USING fts5(text)")
        terms = query_terms(query, LANGUAGES)
        if terms:
            match = fts5_query(terms)
            connection.execute("SELECT * FROM pages WHERE pages MATCH ?", [match]).fetchall()
    finally:
        connection.close()


@given(st.text(max_size=60), st.sampled_from(LANGUAGES))
def test_any_text_can_be_indexed(text, language):
    assert isinstance(fts5_input(text, language), str)
    assert not set("'\"\\:&|!()*") & set(tsvector_input(text, language))
