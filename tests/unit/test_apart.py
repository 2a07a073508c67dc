"""Names of files that people can tell apart."""

from __future__ import annotations

from quire import format


def named(*files: tuple[str, str]) -> list[str]:
    return format.distinct_names({"name": name, "uri": uri} for name, uri in files)


def test_a_name_that_is_there_once_stands_alone():
    assert named(("a.pdf", "file:///x/a.pdf"), ("b.pdf", "file:///x/b.pdf")) == [
        "a.pdf",
        "b.pdf",
    ]


def test_names_that_repeat_get_as_many_folders_as_tell_them_apart():
    files = [
        ("a.pdf", "file:///in/2024/may/a.pdf"),
        ("a.pdf", "file:///in/2025/may/a.pdf"),
        ("b c.pdf", "file:///in/one%20place/b%20c.pdf"),
        ("b c.pdf", "file:///in/b%20c.pdf"),
    ]
    assert named(*files) == [
        "2024/may/a.pdf", "2025/may/a.pdf", "one place/b c.pdf", "in/b c.pdf",
    ]  # fmt: skip


def test_a_file_that_has_fewer_folders_is_shown_with_those_it_has():
    assert named(("a", "up:a"), ("a", "s3://b/a")) == ["a", "b/a"]
