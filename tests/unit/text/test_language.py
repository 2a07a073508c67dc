"""Which language a page is in."""

import pytest

from quire.text.language import detect

PAGES = {
    "en": "The river rose in the night and took the wooden bridge with it. We could not cross.",
    "de": "Der Fluss stieg in der Nacht und nahm die hölzerne Brücke mit. Wir kamen nicht weiter.",
    "fr": "La rivière est montée dans la nuit et a emporté le pont de bois. Nous ne pouvions pas.",
    "vi": "Con sông dâng lên trong đêm và cuốn trôi cây cầu gỗ. Chúng tôi không thể qua sông.",
    "es": "El río creció en la noche y se llevó el puente de madera. No pudimos cruzar por días.",
    "it": "Il fiume salì nella notte e portò via il ponte di legno. Non abbiamo potuto passare.",
    "pt": "O rio subiu durante a noite e levou a ponte de madeira. Não conseguimos passar.",
    "nl": "De rivier steeg in de nacht en nam de houten brug mee. We konden niet oversteken.",
    "zh": "河水在夜里上涨，冲走了木桥。我们三天无法过河。",
    "ja": "川は夜のうちに増水し、木の橋を流した。",
    "ko": "강물이 밤새 불어나 나무다리를 쓸어 갔다.",
    "th": "แม่น้ำเพิ่มขึ้นในตอนกลางคืน",
    "ru": "Река поднялась ночью и унесла деревянный мост.",
    "el": "Το ποτάμι ανέβηκε τη νύχτα.",
    "ar": "ارتفع النهر في الليل.",
    "he": "הנהר עלה בלילה.",
    "hi": "रात में नदी चढ़ गई।",
}


@pytest.mark.parametrize("language", PAGES)
def test_a_sentence_tells_the_language(language):
    assert detect(PAGES[language]) == language
    assert detect(PAGES[language] * 50) == language


@pytest.mark.parametrize(
    "text", ["", "   ", "Invoice 2024-0001", "17.50 EUR", "…—”", "a", "\ud800"]
)
def test_too_little_text_is_unknown(text):
    assert detect(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Table 1 A E I O Total a b c d e f g h i o net gross a e i o Sum",
        "A uniform table Header e Header i Header o Cell a Cell e Cell i Cell o 1.0 1.1 1.2",
    ],
)
def test_single_letters_of_a_table_decide_no_language(text):
    assert detect(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Floden steg om natten og tog træbroen med sig. Vi kunne ikke komme over i tre dage.",
        "Floden steg under natten och tog med sig träbron. Vi kunde inte ta oss över på tre dagar.",
        "Rzeka wezbrała w nocy i zabrała ze sobą drewniany most. Nie mogliśmy się dostać.",
        "Râul a crescut în timpul nopții și a luat podul de lemn. Nu am putut trece de pe un mal.",
        "El riu va créixer a la nit i es va endur el pont de fusta. No vam poder passar amb res.",
        "Ріка піднялася вночі й забрала дерев'яний міст. Ми не могли перейти її три дні.",
    ],
)
def test_a_language_that_is_not_told_apart_is_unknown(text):
    assert detect(text) == ""
    assert detect(text * 20) == ""


def test_some_foreign_words_do_not_change_the_language():
    assert detect(PAGES["en"] + " See 洪水 (kōzui) for more of it in the next chapter.") == "en"
    assert detect("使用 Python 编写的程序可以在 Linux 和 Windows 上运行，无需修改。") == "zh"
