"""Secrets of URLs are not shown: passwords, and the parameters of signed addresses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.url_secrets import identity, marked, masked, masked_json, open_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:s3cret@h/a.pdf", "https://ann:***@h/a.pdf"),
        ("https://token@h/a.pdf", "https://***@h/a.pdf"),
        ("at HTTPS://token@h/a.pdf", "at HTTPS://***@h/a.pdf"),
        ("postgresql://nobody@h/x", "postgresql://nobody@h/x"),
        ("imap://ann:pw@h/x", "imap://ann:***@h/x"),
        ("https://h/a?x=1&sig=AB%2B&se=2", "https://h/a?x=1&sig=***&se=2"),
        ("https://h/?X-Amz-Signature=ab&a=1", "https://h/?X-Amz-Signature=***&a=1"),
        ("403 from https://a:b@h/x?token=t (no)", "403 from https://a:***@h/x?token=*** (no)"),
        ("https://ann:s3@cret@h/a.pdf", "https://ann:***@h/a.pdf"),
        ("https://ann:s3'c\"ret@h/a.pdf", "https://ann:***@h/a.pdf"),
        ("https://h/a?page=1?token=t", "https://h/a?page=1?token=***"),
        ("https://h/a#access_token=t", "https://h/a#access_token=***"),
        ("https://h/a?%73ig=t&myApiKey=u&keyword=v", "https://h/a?%73ig=***&myApiKey=***&keyword=v"),
        ("https://h/a?to=https%3A%2F%2Fh%3Fsig%3Dt&b=1", "https://h/a?to=***&b=1"),
        ("https://h/a?to=https://u:pw@h", "https://h/a?to=https://u:***@h"),
        ("https://h/a?sig=***0123456789abcdef", "https://h/a?sig=***"),
        ("https://h/mail@example.com?page=2", "https://h/mail@example.com?page=2"),
        ("file:///srv/a@b/c.pdf?", "file:///srv/a@b/c.pdf?"),
        ("s3://bucket/a=b&key=c", "s3://bucket/a=b&key=***"),
        ("no address: key=1", "no address: key=1"),
    ],
)  # fmt: skip
def test_a_text_is_shown_without_the_secrets_of_its_addresses(text: str, shown: str):
    assert masked(text) == shown
    assert masked_json(json.dumps({"sources": [text, '"']})) == {"sources": [shown, '"']}


def tag(secret: str) -> str:
    return secret.encode().hex()[-16:].rjust(16, "0")


@pytest.mark.parametrize(
    ("url", "stored", "known_as"),
    [
        ("https://ann:pw@h/a", "https://ann:***0000000000007077@h/a", "https://ann:***@h/a"),
        ("https://h/a?key=1", "https://h/a?key=***0000000000000031",
         "https://h/a?key=***0000000000000031"),
        ("https://h/a?x=1&se=9&sig=2", "https://h/a?x=1&se=9&sig=***0000000000000032",
         "https://h/a?x=1&se=***&sig=***"),
        ("https://h/a?X-Amz-Date=1&X-Amz-Signature=2&v=3",
         "https://h/a?X-Amz-Date=***0000000000000031&X-Amz-Signature=***0000000000000032&v=3",
         "https://h/a?X-Amz-Date=***&X-Amz-Signature=***&v=3"),
        ("see https://u:1@h/?token=2 now", "see https://u:***0000000000000031@h/"
         "?token=***0000000000000032 now", "see https://u:***@h/?token=***0000000000000032 now"),
        ("file:///srv/a?key=1", "file:///srv/a?key=1", "file:///srv/a?key=1"),
        ("/srv/a?key=1", "/srv/a?key=1", "/srv/a?key=1"),
        ("https://h/a?expires=5", "https://h/a?expires=5", "https://h/a?expires=5"),
    ],
)  # fmt: skip
def test_marks_stand_for_secrets_and_a_document_is_known_without_its_signature(
    url: str, stored: str, known_as: str
):
    assert marked(url, tag) == stored
    assert marked(stored, tag) == stored
    assert identity(stored) == known_as
    assert identity(known_as) == known_as
    assert open_secrets(stored) == []


@given(st.text(st.sampled_from("https:/?&=#@%3a.sigkey tokn'\"\\***0123456789"), max_size=300))
def test_whatever_was_marked_or_masked_has_no_secret_left(text: str):
    for start in ("", "https://", "https://h/?"):
        assert open_secrets(marked(start + text, tag)) == []
        assert open_secrets(masked(start + text)) == []


def test_a_long_text_of_almost_addresses_is_read_in_linear_time():
    assert masked("://a:" * 200_000) == "://a:" * 200_000
    assert masked("?key=" * 200_000 + "://").count("***") == 1
