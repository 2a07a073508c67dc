"""Finds the language of a page cheaply: by its script, or by the small words of the language.

Only languages that are searched differently are told apart. Unknown is "", and is searched like
English. Chosen for speed: a page costs some tens of microseconds.
"""

from bisect import bisect_right
from collections import Counter
from itertools import chain

_SAMPLE = 1_500  # characters looked at
_STRIDE = 13  # every so many of them for the script
_FEWEST = 40  # characters that tell a script
_LAST_LATIN = "\u024f"
_LEAST_SMALL_WORDS = 3
_LEAST_SHARE = 0.04  # of small words among all words

#: First code point of a script, and its language; "" is everything that tells nothing.
_SCRIPTS: tuple[tuple[int, str], ...] = (
    (0x0000, "latin"),
    (0x0250, ""),
    (0x0370, "el"),
    (0x0400, "ru"),
    (0x0530, ""),
    (0x0590, "he"),
    (0x0600, "ar"),
    (0x0700, ""),
    (0x0900, "hi"),
    (0x0980, ""),
    (0x0E00, "th"),
    (0x0E80, ""),
    (0x1100, "ko"),
    (0x1200, ""),
    (0x1E00, "latin"),
    (0x1F00, "el"),
    (0x2000, ""),
    (0x3040, "ja"),
    (0x3100, ""),
    (0x3130, "ko"),
    (0x3190, ""),
    (0x31F0, "ja"),
    (0x3200, ""),
    (0x3400, "zh"),
    (0xA000, ""),
    (0xAC00, "ko"),
    (0xD7B0, ""),
    (0xF900, "zh"),
    (0xFB00, ""),
    (0xFF66, "ja"),
    (0xFFA0, ""),
    (0x20000, "zh"),
    (0x33480, ""),
)
_STARTS = [start for start, _ in _SCRIPTS]
_NAMES = [name for _, name in _SCRIPTS]

#: Small words that carry no topic; also what a search leaves out.
SMALL_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": """a an and are as at be been but by can could did do does for from had has have he
            her his how i if in into is it its me my no not of on or our she should so than that
            the their them then there these they this those to was we were what when where which
            who why will with would you your""",
        "de": """aber als am an auch auf aus bei bin bis da das dass dem den der des die doch du
            durch ein eine einem einen einer eines er es für hat ich ihr im in ist ja kann mit nach
            nicht noch nur ob oder ohne sein sich sie sind so um und uns vom von vor war was wenn
            wer wie wir wird wo zu zum zur über""",
        "fr": """à au aux avec ce ces cette dans de des du elle en est et il ils je l la le les leur
            lui mais ne nous on ont ou où par pas plus pour qu que qui quoi sa se ses son sont sur
            te tu un une vous d être était""",
        "es": """a al como con de del donde e el ella en entre es esta este fue ha hay la las le lo
            los más no nos o para pero por porque que qué se ser si sin sobre son su sus también un
            una y ya""",
        "it": """a ad al alla anche che chi ci come con cosa da dal dalla dei del della delle di e è
            era gli ha i il in la le lo ma nel nella non o per perché più quando quello questo se
            si sono su sul una un uno""",
        "pt": """a ao aos as até com como da das de do dos e é ela ele em entre era essa esse esta
            este foi há isso já mais mas na não nas no nos o os ou para pela pelo por quando que
            quem se sem ser seu sua são também um uma""",
        "nl": """aan als bij dat de den der deze die dit door een en er geen had heeft het hij hoe
            ik in is kan maar met naar niet nog of om ook op over te tot uit van voor waar was wat
            we werd wordt zal ze zich zij zijn zo""",
        "vi": """các cái cho chúng có của cũng đã đang đến để đó được gì hay khi không là lại một
            này nhiều những như nhưng ở ra rất sẽ tại thì trên trong từ và về với vào""",
    }.items()
}


def _speakers() -> dict[str, tuple[str, ...]]:
    """Return the languages of each small word."""
    found: dict[str, tuple[str, ...]] = {}
    for language, words in SMALL_WORDS.items():
        for word in words:
            found[word] = (*found.get(word, ()), language)
    return found


_SPEAKERS = _speakers()


def detect(text: str) -> str:
    """Return the language as two letters, or '' for one not known or too little text."""
    sample = text[:_SAMPLE]
    if not sample.isascii():
        script = _script(sample)
        if script != "latin":
            return script
    return _by_small_words(sample)


def _script(sample: str) -> str:
    """Return the language of the script that a part of the letters is in."""
    seen = sample[::_STRIDE] if len(sample) > _STRIDE * _FEWEST else sample
    if sum(char > _LAST_LATIN for char in seen) * 8 < len(seen):
        return "latin"
    letters = filter(str.isalpha, seen)
    shares = Counter(_NAMES[bisect_right(_STARTS, ord(char)) - 1] for char in letters)
    if shares["ja"] * 20 >= shares["ja"] + shares["zh"] > 0:  # Japanese mixes in Chinese signs
        shares["ja"] += shares.pop("zh", 0)
    # A sign of Chinese says as much as some letters of a Latin word.
    shares["latin"] //= 4
    best, count = max(shares.items(), key=lambda item: item[1])
    return best if count else "latin"


def _by_small_words(sample: str) -> str:
    words = sample.lower().split()
    votes = Counter(chain.from_iterable(filter(None, map(_SPEAKERS.get, words))))
    ranking = votes.most_common(2)
    if not ranking:
        return ""
    language, count = ranking[0]
    tied = len(ranking) > 1 and ranking[1][1] == count
    enough = count >= _LEAST_SMALL_WORDS and count >= _LEAST_SHARE * len(words)
    return language if enough and not tied else ""
