"""Embedders on this machine: the same vectors as the library, faster and without surprises."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from quire.errors import BadInput, Permanent
from quire.text.embed import wordllama as module
from quire.text.embed.embedder import open_embedder
from quire.text.embed.wordllama import WordLlama

TEXTS = [
    "The river rose in the night and took the wooden bridge with it.",
    "  two  spaces,   three\n\n\r\nlines\ttabs   \n  indented ",
    "Größe, Übermaß; d’être, œuvre; naïve café — “quoted” … §12 ² ².",
    "Здравствуй, мир! Ελληνικά. العربية. עברית",
    "漢字仮名交じり文。中文，标点；한국어 ไทย नमस्ते",
    "0123456789 3.14159 1,000,000 -5e-3 x1y2z3 ²³",
    "def f(x):\n    return {'a': x[0], \"b\": None}  # comment\n" * 3,
    "a<s>b</s> c<unk>d <s> <b>bold</b> <s></s>",
    "▁under▁score▁ __init__ snake_case camelCase HTTPServer",
    "👩‍👩‍👧 e\u0301 \u200e\u2009\u200a\xa0 \ufffd",
    "https://example.org/a/b?c=d&e=f#g user@example.org C:\\dir\\file.txt",
    "supercalifragilisticexpialidocious" * 5,
    " ",
    "\n",
    "x",
]


@pytest.fixture(scope="module")
def library():
    """WordLlama as it comes; its import configures logging, which is put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    import wordllama

    root.handlers[:], root.level = handlers, level
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True, dim=256)


def test_vectors_are_those_of_the_library(library):
    expected = library.embed(TEXTS, norm=True)
    assert np.abs(open_embedder("wordllama").embed(TEXTS) - expected).max() < 1e-5


def test_fewer_dimensions_are_the_first_ones():
    few, all_ = WordLlama(64).embed(TEXTS), open_embedder("wordllama").embed(TEXTS)
    first = all_[:, :64] / np.linalg.norm(all_[:, :64], axis=1, keepdims=True)
    assert np.abs(few - first).max() < 1e-5
    with pytest.raises(BadInput, match="no 100 dimensions"):
        open_embedder("wordllama", dimensions=100)


def test_an_empty_text_is_a_zero_vector_and_others_have_length_one():
    found = open_embedder("wordllama").embed(["", "word", ""])
    assert np.linalg.norm(found, axis=1).round(5).tolist() == [0, 1, 0]
    assert open_embedder("wordllama").embed([]).shape == (0, 256)


def test_a_lone_surrogate_is_read_as_the_replacement_character():
    broken, clean = open_embedder("wordllama").embed(["a \ud800 b", "a \ufffd b"])
    assert np.array_equal(broken, clean)


def test_a_full_table_starts_over_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(module, "_MAX_CACHED_WORDS", 60)
    monkeypatch.setattr(module, "_BLOCK", 20)
    small = WordLlama()
    for _ in range(3):
        assert np.allclose(small.embed(TEXTS), open_embedder("wordllama").embed(TEXTS), atol=1e-6)


def test_an_embedder_is_opened_once_a_process():
    assert open_embedder("wordllama") is open_embedder("wordllama")
    assert open_embedder("wordllama").name == "wordllama-256@0.4"


def test_none_has_no_vectors():
    without = open_embedder("none")
    assert (without.name, without.dimensions) == ("none", 0)
    assert without.embed(["a", "b"]).shape == (2, 0)


def test_an_unknown_embedder_or_option_is_refused():
    with pytest.raises(BadInput, match="expected wordllama"):
        open_embedder("word2vec")
    with pytest.raises(TypeError, match="speed"):
        open_embedder("wordllama", speed=2)


def test_where_the_wheel_is_missing_the_error_says_what_to_set(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Permanent, match="Set an embedding endpoint, or embedder=none"):
        WordLlama()


def test_opening_is_quiet_and_imports_no_more_than_it_needs():
    code = (
        "import sys, logging; from quire.text.embed.embedder import open_embedder\n"
        "assert 'numpy' not in sys.modules\n"
        "open_embedder('wordllama').embed(['a text'])\n"
        "assert not logging.getLogger().handlers\n"
        "print(sorted({'wordllama', 'requests', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
