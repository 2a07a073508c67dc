"""Compares our HTML, encoding and language code with the libraries that do the same.

    python -m benchmarks.ingest.libraries html encodings languages

Libraries that are not installed are left out. docs/dependencies.md has the figures and decisions.
"""

import gettext
import importlib.util
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

LOCALES = Path("/usr/share/locale")
SUPPORTED = "en de fr es it pt nl vi ru el ar he th hi ko ja zh_CN".split()  # noqa: SIM905
OTHERS = "pl cs hu ro hr sv da nb fi tr uk bg id ca et lt lv sk sl".split()  # noqa: SIM905
ENCODINGS = {
    "Western": {"de fr es it pt nl sv da fi nb ca": "cp1252 iso8859-15"},
    "Central European": {"pl cs hu ro hr sk sl": "cp1250 iso8859-2"},
    "Cyrillic": {"ru": "cp1251 koi8-r iso8859-5 cp866", "uk bg": "cp1251"},
    "Greek, Turkish, Baltic": {"el": "cp1253", "tr": "cp1254", "lt lv et": "cp1257"},
    "CJK": {"ja": "shift_jis euc_jp", "zh_CN": "gb18030", "zh_TW": "big5", "ko": "euc_kr"},
    "UTF-8": {"en de ru ja": "utf-8"},
}
HOSTILE = {
    "<a href='": 4_000,
    "<!--": 4_000,
    "</": 4_000,
    "<div>": 10_000,
    "<b class={n}><p>x": 1_000,
}
_WITHOUT_SPACES = ("ja", "zh_CN", "zh_TW", "th")
_MARKUP = re.compile(r"[%<>{}|=\\$@#]|--|https?:|/\w+/")


def main() -> None:
    """Run the comparisons named on the command line."""
    known = {"html": html, "encodings": encodings, "languages": languages}
    for name in sys.argv[1:] or known:
        known[name]()


def html() -> None:
    """Print the processor time of ordinary and hostile pages."""
    block = "<div class='a'><p>Some <b>words</b> &amp; a <a href='x'>link</a>.</p>\n</div>\n"
    pages = {"ordinary, 1 MB": block * ((1 << 20) // len(block))}
    for part, count in HOSTILE.items():
        pages[f"{part} × {count:,}"] = "".join(part.replace("{n}", str(n)) for n in range(count))
    candidates = _html_candidates()
    for name, page in pages.items():
        spent = {who: _fastest(work, page) for who, work in candidates.items()}
        print(f"{name:32}", *(f"{who} {seconds * 1000:.0f} ms" for who, seconds in spent.items()))


def encodings() -> None:
    """Print how many texts come out as they were written, for each group of encodings."""
    candidates = _encoding_candidates()
    chance = random.Random(3)  # noqa: S311
    for group, plan in ENCODINGS.items():
        texts = [
            (text, encoding)
            for languages_, names in plan.items()
            for language in languages_.split()
            for encoding in names.split()
            for text in _encodable(language, encoding, chance)
        ]
        right = dict.fromkeys(candidates, 0)
        for text, encoding in texts:
            for who, guess in candidates.items():
                right[who] += _is_near(
                    text, text.encode(encoding).decode(guess(text.encode(encoding)), "replace")
                )
        shares = (f"{who} {count / max(1, len(texts)):.1%}" for who, count in right.items())
        print(f"{group:24} {len(texts):5} texts", *shares)


def languages() -> None:
    """Print how many texts of each length get the right language, or rightly none."""
    candidates = _language_candidates()
    chance = random.Random(5)  # noqa: S311
    known = {each[:2] for each in SUPPORTED}
    for title, codes in (("supported", SUPPORTED), ("others", OTHERS)):
        for size in (8, 20, 50, 400):
            texts = [(code[:2], text) for code in codes for text in _samples(code, size, chance)]
            right = dict.fromkeys(candidates, 0)
            for code, text in texts:
                for who, detect in candidates.items():
                    found = detect(text)
                    right[who] += found == code if code in known else found not in known
            shares = (f"{who} {count / max(1, len(texts)):.1%}" for who, count in right.items())
            print(f"{title}, {size} words: {len(texts)} texts", *shares)


def _html_candidates() -> dict[str, Callable[[str], Any]]:
    from quire.parse import markup

    def standard(page: str) -> None:
        parser = HTMLParser()
        parser.feed(page)
        parser.close()

    found: dict[str, Callable[[str], Any]] = {"own": markup.html_text, "html.parser": standard}
    if importlib.util.find_spec("selectolax"):
        lexbor: Any = importlib.import_module("selectolax.lexbor")
        found["selectolax"] = lambda page: lexbor.LexborHTMLParser(page).text()
    if importlib.util.find_spec("lxml"):
        lxml: Any = importlib.import_module("lxml.html")
        found["lxml"] = lambda page: lxml.fromstring(f"<p>start</p>{page}").text_content()
    return found


def _encoding_candidates() -> dict[str, Callable[[bytes], str]]:
    import chardet

    from quire.parse import encoding

    found: dict[str, Callable[[bytes], str]] = {
        "own": encoding.guess,
        "chardet": lambda content: chardet.detect(content)["encoding"] or "cp1252",
    }
    if importlib.util.find_spec("charset_normalizer"):
        normalizer: Any = importlib.import_module("charset_normalizer")

        def guess(content: bytes) -> str:
            best = normalizer.from_bytes(content).best()
            return str(best.encoding) if best else "cp1252"

        found["charset-normalizer"] = guess
    return found


def _language_candidates() -> dict[str, Callable[[str], str]]:
    from quire.text import language

    found: dict[str, Callable[[str], str]] = {"own": language.detect}
    if importlib.util.find_spec("py3langid"):
        langid: Any = importlib.import_module("py3langid")
        found["py3langid"] = lambda text: str(langid.classify(text)[0])
    if importlib.util.find_spec("lingua"):
        lingua: Any = importlib.import_module("lingua")
        detector = lingua.LanguageDetectorBuilder.from_all_languages().build()

        def detect(text: str) -> str:
            answer = detector.detect_language_of(text)
            return str(answer.iso_code_639_1.name).lower() if answer else ""

        found["lingua"] = detect
    return found


_sentences: dict[str, list[str]] = {}


def _catalogue(code: str) -> list[str]:
    """Return the sentences of a language in the message catalogues of this machine."""
    if code not in _sentences:
        folder = LOCALES / ("de" if code == "en" else code) / "LC_MESSAGES"
        found: dict[str, None] = {}
        for path in sorted(folder.glob("*.mo")):
            try:
                with path.open("rb") as file:
                    catalogue: Any = gettext.GNUTranslations(file)
            except UnicodeDecodeError:  # an old catalogue in another encoding
                continue
            for source, text in catalogue._catalog.items():
                chosen = source if code == "en" else text
                if isinstance(chosen, str) and source != text:
                    found.update(dict.fromkeys(_prose(chosen, code)))
        _sentences[code] = list(found)
    return _sentences[code]


def _prose(text: str, code: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        line = re.sub(r"[_&]", "", " ".join(paragraph.split()))
        is_long = len(line) >= 18 if code in _WITHOUT_SPACES else len(line.split()) >= 6
        if is_long and len(line) < 600 and not _MARKUP.search(line):
            yield line


def _samples(code: str, words: int, chance: random.Random, count: int = 40) -> Iterator[str]:
    sentences = _catalogue(code)
    for _ in range(count if sentences else 0):
        text = ""
        while len(text) < 600 if code in _WITHOUT_SPACES else len(text.split()) < words:
            text += chance.choice(sentences) + " "
        yield text[: 2 * words] if code in _WITHOUT_SPACES else " ".join(text.split()[:words])


def _encodable(code: str, encoding: str, chance: random.Random) -> Iterator[str]:
    for words in (6, 150):
        for text in _samples(code, words, chance, 10):
            usable = text.encode(encoding, "ignore").decode(encoding)
            if encoding == "utf-8" or not usable.isascii():
                yield usable


def _is_near(text: str, read: str) -> bool:
    differing = sum(a != b for a, b in zip(text, read, strict=False))
    return len(text) == len(read) and differing <= 0.002 * len(text)


def _fastest(work: Callable[[str], Any], page: str) -> float:
    spent = []
    for _ in range(3):
        began = time.process_time()
        work(page)
        spent.append(time.process_time() - began)
        if spent[-1] > 2:
            break
    return min(spent)


if __name__ == "__main__":
    main()
