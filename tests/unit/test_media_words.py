"""Media types as people call them."""

import pytest

from quire.format import media_type as media_word
from quire.parse import file_type


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("text/plain", "text"),
        ("text/plain; charset=utf-8", "text"),
        ("message/rfc822", "mail"),
        (file_type.UNKNOWN, "unknown"),
        (file_type.DOCX, "docx"),
        (file_type.XLSX, "xlsx"),
        (file_type.PPTX, "pptx"),
        (file_type.PDF, "pdf"),
        ("text/markdown", "markdown"),
        ("image/png", "png"),
        ("application/x-thing", "thing"),
        (None, ""),
    ],
)
def test_a_media_type_is_written_as_people_call_it(name: str | None, word: str):
    assert media_word(name) == word
