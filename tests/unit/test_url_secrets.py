"""Secrets of URLs are not shown: passwords, and the parameters of signed addresses."""

from __future__ import annotations

import json

import pytest

from quire.model.url_secrets import masked, masked_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:s3cret@h/a.pdf", "https://ann:***@h/a.pdf"),
        ("https://token@h/a.pdf", "https://***@h/a.pdf"),
        ("https://h/a?x=1&sig=AB%2B&se=2", "https://h/a?x=1&sig=***&se=2"),
        ("https://h/?X-Amz-Signature=ab&a=1", "https://h/?X-Amz-Signature=***&a=1"),
        ("403 from https://a:b@h/x?token=t (no)", "403 from https://a:***@h/x?token=*** (no)"),
        ("https://h/mail@example.com?page=2", "https://h/mail@example.com?page=2"),
        ("file:///srv/a@b/c.pdf?", "file:///srv/a@b/c.pdf?"),
        ("s3://bucket/a=b&key=c", "s3://bucket/a=b&key=***"),
        ("no address: key=1", "no address: key=1"),
    ],
)  # fmt: skip
def test_a_text_is_shown_without_the_secrets_of_its_addresses(text: str, shown: str):
    assert masked(text) == shown
    assert masked_json(json.dumps({"sources": [text, '"']})) == {"sources": [shown, '"']}


def test_a_long_text_of_almost_addresses_is_read_in_linear_time():
    assert masked("://a:" * 200_000) == "://a:" * 200_000
    assert masked("?key=" * 200_000 + "://").count("***") == 1
