"""Texts in six languages, from the file to the search: each is found by its own rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.control.search import search
from tests.shelf import Shelf, open_shelf

TEXTS = {
    "en": "The houses by the river were flooded twice last winter. Naïve plans for a dam had "
    "failed, and the families who lived there moved to the hills.",
    "de": "Die Häuser am Fluss wurden im letzten Winter zweimal überschwemmt. Die Straße war "
    "gesperrt, und die Familien zogen in die Berge.",
    "fr": "Les maisons près de la rivière ont été inondées deux fois l'hiver dernier. L'œuvre fut "
    "achevée l'été suivant, et les familles sont parties vers les collines.",
    "vi": "Những ngôi nhà ven sông đã bị ngập hai lần vào mùa đông năm ngoái. Đường phố Đà Nẵng "
    "đóng cửa, và các gia đình chuyển lên núi.",
    "zh": "去年冬天，河边的房子两次被洪水淹没。机器学习可以预测洪水，但是居民们已经搬到山上去了。",
    "ja": "川沿いの家は去年の冬に二度も浸水した。"
    "データベースを調べると、住民は山へ引っ越したことがわかる。",
}
ASKED = {
    "en": ("flooding", "naive", "living", '"by the river"'),
    "de": ("haus", "überschwemmte", "strasse", '"am Fluss"'),
    "fr": ("inondée", "oeuvre", "rivieres", '"les maisons"'),
    "vi": ("da nang", "Đường", "gia đình", '"ven sông"'),
    "zh": ("机器学习", "淹没", "居民", '"预测洪水"'),
    "ja": ("データ", "浸水", "べる", '"川沿いの家"'),
}


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def test_each_of_six_languages_is_found_in_other_forms_than_it_was_written_in(shelf: Shelf):
    for language, text in TEXTS.items():
        shelf.put(f"{language}.txt", text)
    shelf.ingest()
    assert {row.language for row in shelf.rows("chunks")} == set(TEXTS)
    found = {
        (language, query): search(shelf.db, "default", query, mode="text")["items"]
        for language, queries in ASKED.items()
        for query in queries
    }
    first = {key: [hit["name"] for hit in hits[:1]] for key, hits in found.items()}
    assert first == {key: [f"{key[0]}.txt"] for key in found}
    assert [key for key, hits in found.items() if not hits[0]["highlights"]] == []
    for misspelt, meant in (("überschwemtm", "überschwemmt"), ("ditse", "dites")):
        answer = search(shelf.db, "default", misspelt, mode="text")
        assert answer.get("did_you_mean") == ({misspelt: meant} if misspelt[0] == "ü" else None)
