"""Plugins: files and modules, collected without side effects of importing Quire."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from quire import plugins
from quire.errors import PluginFailed
from quire.fetch.sources import registry as sources
from quire.model.contracts import OWN_SCHEMES, JobKind, job, parser, source
from quire.parse import plugin_parser


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return str(path)


GREET = """
    from quire import job

    @job("greet", max_attempts=5, timeout=7, queue="polite")
    def greet(ctx, name):
        return "hello " + name
"""


def load(*names: str) -> dict[str, JobKind]:
    return plugins.load(names, entry_points=False).kinds


def test_a_file_gives_its_kinds(tmp_path):
    kind = load(write(tmp_path, "hello.py", GREET))["greet"]
    assert (kind.max_attempts, kind.timeout, kind.queue) == (5, 7, "polite")
    assert kind.function(None, "Ada") == "hello Ada"


def test_the_built_in_kinds_are_there(tmp_path):
    assert {"noop", "wait"} <= set(load())


def test_a_module_gives_its_kinds(tmp_path, monkeypatch):
    write(tmp_path, "plugin_for_a_test.py", GREET.replace("greet", "greet_module"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "greet_module" in load("plugin_for_a_test")


def test_one_file_named_in_two_ways_is_loaded_once(tmp_path, monkeypatch):
    path = write(tmp_path, "twice.py", GREET)
    monkeypatch.chdir(tmp_path)
    assert "greet" in load(path, "twice.py", str(tmp_path / "." / "twice.py"))


def test_two_handlers_of_one_name_are_refused(tmp_path):
    a, b = write(tmp_path, "a.py", GREET), write(tmp_path, "b.py", GREET)
    with pytest.raises(PluginFailed, match="greet"):
        load(a, b)


def test_a_handler_imported_by_another_plugin_is_the_same_one(tmp_path):
    write(tmp_path, "shared_kinds.py", GREET)
    importer = write(tmp_path, "importer.py", "from shared_kinds import greet\n")
    assert "greet" in load(importer)


def test_a_file_beside_the_plugin_can_be_imported(tmp_path):
    write(tmp_path, "beside_it.py", "WORD = 'hi'\n")
    path = write(tmp_path, "uses_it.py", "from beside_it import WORD\n" + textwrap.dedent(GREET))
    assert "greet" in load(path)


def test_a_broken_file_is_refused_with_its_error_and_can_be_mended(tmp_path):
    path = write(tmp_path, "broken.py", "1 / 0\n")
    with pytest.raises(PluginFailed, match="ZeroDivisionError"):
        load(path)
    Path(path).write_text(textwrap.dedent(GREET) + "# mended, and longer than before\n")
    assert "greet" in load(path)


def test_a_plugin_that_exits_on_import_is_refused(tmp_path):
    with pytest.raises(PluginFailed, match="SystemExit"):
        load(write(tmp_path, "leaves.py", "raise SystemExit(3)\n"))


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(PluginFailed, match="no such file"):
        load(str(tmp_path / "nowhere.py"))


def test_a_module_that_does_not_exist_is_refused():
    with pytest.raises(PluginFailed, match="no_such_module"):
        load("no_such_module")


def test_a_mark_leaves_the_function_as_it_was():
    def work(ctx):
        return 5

    assert job("w")(work) is work
    assert work(None) == 5


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü!", "."])
def test_a_kind_with_a_bad_name_is_refused(name):
    with pytest.raises(ValueError, match="name"):
        job(name)


def test_at_most_once_needs_a_reason_and_has_one_attempt():
    with pytest.raises(ValueError, match="reason"):
        job("pay", at_most_once=True)
    work = job("pay", at_most_once=True, reason="it charges a card")(lambda ctx: None)
    assert work.__quire__.max_attempts == 1  # type: ignore[attr-defined]


def test_attempts_outside_their_range_are_refused():
    for number in (0, 1001):
        with pytest.raises(ValueError, match="max_attempts"):
            job("x", max_attempts=number)


@pytest.mark.parametrize(
    ("old", "error"),
    [
        ("retries", "retries was replaced by max_attempts, which counts the first attempt too"),
        ("wedged", "wedged was renamed to stall_timeout. Use that instead."),
        ("backoff_most", "backoff_most was renamed to max_backoff. Use that instead."),
        ("timeot", "there is no option 'timeot'"),
    ],
)
def test_an_old_name_of_an_option_is_named_in_the_error(old, error):
    with pytest.raises(TypeError, match=re.escape(f"@job('x'): {error}")):
        job("x", **{old: 3})  # type: ignore[arg-type]


BOOKS = """
    from quire import parser, source

    @parser("application/epub+zip", name="epub", suffixes=(".epub",), version=3)
    def read_book(path):
        yield "text"

    @source("attic")
    class Attic:
        def items(self, url):
            return []

        def read(self, item, start):
            return []
"""


def refused(folder: Path, *texts: str) -> str:
    """What is said when plugins of these texts are loaded together."""
    made = len(list(folder.iterdir()))
    paths = [write(folder, f"plugin_{made + at}.py", text) for at, text in enumerate(texts)]
    with pytest.raises(PluginFailed) as caught:
        load(*paths)
    return str(caught.value)


def test_a_file_gives_its_parsers_and_sources_and_changes_nothing_else(tmp_path):
    plugins.equip(plugins.Registry())
    found = plugins.load([write(tmp_path, "books.py", BOOKS)], entry_points=False)
    kind = found.parsers["epub"]
    assert kind.media_types == ("application/epub+zip",)
    assert (kind.suffixes, kind.version) == ((".epub",), 3)
    assert found.sources["attic"].maker.__name__ == "Attic"
    assert plugin_parser.type_by_suffix("a.epub") is None
    plugins.equip(found)
    assert plugin_parser.type_by_suffix("A.EPUB") == "application/epub+zip"
    assert sources.open_source("attic:top").doctor() == [
        "attic:top: can be listed; files found: 0."
    ]
    plugins.equip(plugins.Registry())
    assert plugin_parser.type_by_suffix("a.epub") is None


def test_a_parser_without_a_name_has_its_functions():
    assert parser("text/x-rst")(lone_reader).__quire__.name == "lone_reader"  # type: ignore[attr-defined]


def lone_reader(path):
    return []


def test_two_parsers_or_two_sources_of_one_name_are_refused(tmp_path):
    only_parser = BOOKS.partition("@source")[0]
    only_source = BOOKS.replace('name="epub"', 'name="other"')
    assert "parser 'epub' is already defined" in refused(tmp_path, BOOKS, only_parser)
    assert "source 'attic' is already defined" in refused(tmp_path, BOOKS, only_source)


def test_two_types_for_one_suffix_are_refused(tmp_path):
    other = BOOKS.partition("@source")[0].replace("epub+zip", "x-book").replace('"epub"', '"book"')
    said = refused(tmp_path, BOOKS, other)
    assert "*.epub as application/x-book" in said
    assert "parser 'epub' declares it as application/epub+zip" in said


@pytest.mark.parametrize(
    ("types", "more", "said"),
    [
        (("application/pdf",), {"name": "auto"}, "not 'auto'"),
        (("application/pdf",), {"name": "a b"}, "name"),
        ((), {"name": "a"}, "no media type"),
        (("pdf",), {"name": "a"}, "'pdf' is not a lower-case media type"),
        (("Application/PDF",), {"name": "a"}, "lower-case"),
        (("a/b",), {"name": "a", "suffixes": ".epub"}, "suffixes are a tuple"),
        (("a/b",), {"name": "a", "suffixes": ("epub",)}, "suffixes are a tuple"),
        (("a/b",), {"name": "a", "version": "2"}, "whole number"),
    ],
)
def test_a_parser_with_a_bad_description_is_refused(types, more, said):
    with pytest.raises(ValueError, match=said):
        parser(*types, **more)(lone_reader)


@pytest.mark.parametrize("scheme", ["", "a", "SFTP", "s ftp", "sftp:", "1st", *OWN_SCHEMES])
def test_a_source_with_a_bad_or_a_taken_scheme_is_refused(scheme):
    with pytest.raises(ValueError, match=r"scheme|Quire has a built-in source"):
        source(scheme)


def test_every_source_of_quires_own_is_a_taken_scheme():
    known = {text.partition(":")[0] for text in sources._BUILT_IN}
    assert known - {"a path"} == set(OWN_SCHEMES)


def test_a_source_without_a_method_is_refused():
    with pytest.raises(ValueError, match=r"no method read\(\)"):
        source("attic")(type("Attic", (), {"items": lambda self, url: []}))
