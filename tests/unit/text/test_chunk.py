"""Where pages are cut."""

import itertools

import pytest
from tokenizers import Tokenizer

from quire.errors import BadInput
from quire.model.pages import ChunkSpan
from quire.text.chunk import ChunkOptions, split
from quire.text.embed import wordllama
from quire.text.tokens import estimate

SENTENCE = "The river rose in the night and took the wooden bridge with it. "


def cut(text: str, tokens: int = 40, overlap: int = 0, delimiter: str = "") -> list[str]:
    return [text[p.start : p.stop] for p in split(text, ChunkOptions(tokens, overlap, delimiter))]


def test_a_short_page_is_one_piece_without_the_space_around_it():
    assert split("  two words \n") == [ChunkSpan(2, 11, estimate("two words"))]


@pytest.mark.parametrize("text", ["", " ", "\n\r\n\t "])
def test_a_page_without_words_has_no_pieces(text):
    assert split(text) == []


def test_paragraphs_are_cut_before_sentences_and_sentences_before_words():
    assert cut(f"{SENTENCE * 2}\n\n{SENTENCE * 2}") == [(SENTENCE * 2).strip()] * 2
    assert all(piece.endswith("it.") for piece in cut(SENTENCE * 20))
    assert all(piece.endswith("d") for piece in cut("word " * 200))


def test_chinese_is_cut_after_a_full_stop():
    assert all(piece.endswith("。") for piece in cut("這是一個簡單的句子。" * 30))


def test_the_delimiter_of_a_corpus_goes_before_every_other_mark():
    found = cut(f"{SENTENCE}%% {SENTENCE}", 24, delimiter="%%")
    assert found == [SENTENCE + "%%", SENTENCE.strip()]


def test_a_piece_repeats_the_last_words_of_the_one_before():
    text = " ".join(f"word{n}" for n in range(300))
    found = split(text, ChunkOptions(64, 16))
    for one, two in itertools.pairwise(found):
        assert two.start < one.stop
        assert 0 < estimate(text[two.start : one.stop]) <= 16
        assert text[two.start - 1] == " "


def test_the_default_piece_has_about_1200_characters_of_prose():
    first, *_ = cut(SENTENCE * 100, ChunkOptions().tokens)
    assert 1000 < len(first) < 1500


def test_the_estimate_is_near_a_real_tokeniser_on_prose():
    tokenizer = Tokenizer.from_file(str(wordllama._folder() / wordllama._TOKENIZER))
    assert 0.9 < estimate(SENTENCE * 10) / len(tokenizer.encode(SENTENCE * 10)) < 1.4


@pytest.mark.parametrize(
    "options", [ChunkOptions(15), ChunkOptions(10**6), ChunkOptions(64, 33), ChunkOptions(64, -1)]
)
def test_sizes_that_cannot_be_met_are_refused(options):
    with pytest.raises(BadInput, match="out of range"):
        split("text", options)
