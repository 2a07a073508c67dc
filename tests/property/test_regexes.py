"""Every regular expression that reads files of strangers takes time linear in its input.

The patterns are collected from the modules, so a new one is tested by being written. Hostile input
is made from the pattern itself: what it expects at each place, repeated, and then something it
does not expect. Growth is a ratio of processor time, so a slow machine changes nothing.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire.parse
import quire.text
from quire.parse import encoding, file_type, markup
from quire.text.embed import wordllama

_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")

#: Four times the input may take this many times as long: linear is 4, quadratic 16.
SHARE = 9.0
SMALL, LARGE = 2_000, 8_000
#: Seconds below which a ratio says nothing.
LEAST = 0.004


def modules() -> Iterator[Any]:
    for package in (quire.parse, quire.text):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield importlib.import_module(found.name)


def patterns() -> dict[str, re.Pattern[Any]]:
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                found[f"{module.__name__}.{name}"] = value
            elif isinstance(value, dict):
                for key, each in value.items():
                    if isinstance(each, re.Pattern):
                        found[f"{module.__name__}.{name}[{key}]"] = each
    words = ("<s>", "▁a", "bc", ".,", "a-b")
    found["quire.text.embed.wordllama._word_pattern"] = wordllama._word_pattern(words)
    return found


PATTERNS = patterns()


REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
ASSERTS = (_constants.ASSERT, _constants.ASSERT_NOT)


def atoms(parsed: Any) -> Iterator[str]:
    """Yield what a pattern takes at each of its places, one example each."""
    for kind, value in parsed:
        if kind is _constants.BRANCH:
            for branch in value[1]:
                yield "".join(atoms(branch))
        elif kind is not _constants.AT:
            yield "".join(_example(kind, value))


def _example(kind: Any, value: Any) -> Iterator[str]:
    if kind is _constants.LITERAL:
        yield chr(value)
    elif kind is _constants.NOT_LITERAL:
        yield "b" if chr(value) == "a" else "a"
    elif kind is _constants.ANY:
        yield "."
    elif kind is _constants.IN:
        yield _member(value)
    else:
        at = 2 if kind in REPEATS else 1 if kind in ASSERTS else -1
        yield from atoms(value if kind is _constants.ATOMIC_GROUP else value[at])


def _member(members: Any) -> str:
    is_negated = members[0][0] is _constants.NEGATE
    allowed = re.compile("[" + "".join(_class(each) for each in members) + "]", re.DOTALL)
    usual = "a1 -.=\t\n\r\v<>/_\x01\x80é中あ\ufffe"
    if is_negated:
        members = members[1:]
    if not is_negated and members[0][0] is _constants.LITERAL:
        return chr(members[0][1])
    if not is_negated and members[0][0] is _constants.RANGE:
        return chr(members[0][1][0])
    return next(char for char in usual if allowed.match(char))


def _class(member: tuple[Any, Any]) -> str:
    kind, value = member
    if kind is _constants.NEGATE:
        return "^"
    if kind is _constants.LITERAL:
        return re.escape(chr(value))
    if kind is _constants.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return {
        _constants.CATEGORY_DIGIT: r"\d",
        _constants.CATEGORY_NOT_DIGIT: r"\D",
        _constants.CATEGORY_SPACE: r"\s",
        _constants.CATEGORY_NOT_SPACE: r"\S",
        _constants.CATEGORY_WORD: r"\w",
        _constants.CATEGORY_NOT_WORD: r"\W",
    }[value]


def hostile(pattern: re.Pattern[Any], size: int) -> Iterator[Any]:
    """Yield inputs of about `size` characters made to lead a pattern astray."""
    found = list(atoms(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)))
    starts = ["".join(found[:at]) for at in range(len(found))]
    units = dict.fromkeys(each for each in [*found, *starts, " ", "\n", "<", "=", "a ", "\t"])
    pairs = [one + other for one, other in itertools.pairwise(found)]
    for unit in filter(None, [*units, *pairs]):
        for start in dict.fromkeys(["", *starts]):
            for end in ("", "\0"):
                text = start + unit * (size // len(unit)) + end
                if isinstance(pattern.pattern, str):
                    yield text
                elif all(ord(char) < 256 for char in text):
                    yield text.encode("latin-1")


def uses(name: str, pattern: re.Pattern[Any]) -> list[Callable[[Any], object]]:
    """Return how a pattern is used: a search tries every start, a match one."""
    module, _, constant = name.rpartition(".")
    source = Path(importlib.import_module(module).__file__ or "").read_text()
    called = set(re.findall(rf"\b{constant.partition('[')[0]}(?:\[\w+\])?\.(\w+)", source))
    if called and called <= {"match", "fullmatch"}:
        return [pattern.match, pattern.fullmatch]
    return [pattern.findall]


def spent(act: Callable[[Any], object], given: Any, times: int = 1) -> float:
    best = float("inf")
    for _ in range(times):
        started = time.process_time()
        act(given)
        best = min(best, time.process_time() - started)
    return best


def grows(act: Callable[[Any], object], small: Any, large: Any) -> bool:
    """Tell whether an input four times as large takes far more than four times as long."""
    if spent(act, large) < LEAST:
        return False
    return spent(act, large, 3) > SHARE * spent(act, small, 5)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_takes_linear_time_on_input_made_against_it(name: str):
    pattern = PATTERNS[name]
    both = zip(hostile(pattern, SMALL), hostile(pattern, LARGE), strict=True)
    for small, large in both:
        for act in uses(name, pattern):
            assert not grows(act, small, large), f"{pattern.pattern!r}: {large[:60]!r}"


@pytest.mark.parametrize(
    "bad",
    [r"(?:<!--.*?-->\s*)*<html", r"[ \t]+(?=\n)", r"(\w+)\s*=\s*'", r"<!--.*?-->", r"(\d+) R"],
)
def test_the_test_finds_patterns_that_are_not_linear(bad: str):
    pattern = re.compile(bad, re.DOTALL)
    both = zip(hostile(pattern, SMALL), hostile(pattern, LARGE), strict=True)
    if bad.startswith("(?:<!--"):  # exponential: even 20 repetitions show it
        few, more = "<!---->" * 12 + "x", "<!---->" * 18 + "x"
        assert spent(pattern.match, more, 3) > 20 * spent(pattern.match, few, 5)
        return
    assert any(grows(pattern.findall, small, large) for small, large in both)


def test_patterns_are_module_constants_where_the_test_finds_them():
    for module in modules():
        tree = ast.parse(Path(module.__file__).read_text())
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        for call in (each for function in functions for each in ast.walk(function)):
            if not (isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)):
                continue
            if call.value.id == "re" and call.attr not in {"escape", "Match", "Pattern"}:
                named = f"{module.__name__}: re.{call.attr}"
                assert named in KNOWN_CALLS, f"{named}: make it a constant of its module"


#: Patterns made at run time, of fixed words or of a query cut to some letters.
KNOWN_CALLS = {
    "quire.parse.pdf.text: re.finditer",
    "quire.text.snippets: re.finditer",
    "quire.text.embed.wordllama: re.compile",
    "quire.text.embed.wordllama: re.DOTALL",
}


HOSTILE_FILES: dict[str, Callable[[int], bytes]] = {
    "comments": lambda n: b"<!---->" * n + b"x",
    "open comments": lambda n: b"<!--" * n,
    "tags in tags": lambda n: b"<a<" * n,
    "an attribute without end": lambda n: b"<p " + b"a" * n * 4,
    "attributes": lambda n: b"<p " + b"a='" * n,
    "declarations": lambda n: b"\x80<meta " + b"<meta charset" * n,
    "spaces after a charset": lambda n: b"\x80<meta charset" + b" " * n * 4 + b"\x80",
    "folded headers": lambda n: b"From: x\n" + b" \t" * n * 2,
    "entities": lambda n: b"&" * n * 4,
    "digits": lambda n: b"&#" + b"1" * n * 4 + b";",
    "script in script": lambda n: b"<script><!--" * n,
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_looking_at_a_hostile_file_takes_linear_time(name: str, tmp_path: Path):
    make = HOSTILE_FILES[name]

    def look(content: bytes) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes(content)
        file_type.detect(path, "a.txt")

    def show(content: bytes) -> None:
        markup.html_text(encoding.decode(content))

    for act in (look, show):
        assert not grows(act, make(1_500), make(6_000))
