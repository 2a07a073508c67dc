"""Detects the language of a page: by its script, or by the stop words of the language.

Only languages that are searched differently are told apart. All others, and texts too short to
tell, are "", which is searched like English. A page takes some tens of microseconds; the API and
the search command use this too, so no model is loaded (docs/dependencies.md has the figures).
"""

from bisect import bisect_right
from collections import Counter
from itertools import chain

_SAMPLE = 1_500  # characters
_SCRIPT_STRIDE = 13  # the script is taken from every 13th character
_MIN_SCRIPT_CHARS = 40
_LAST_LATIN = "\u024f"
_MIN_STOP_WORDS = 3
_MIN_STOP_WORD_SHARE = 0.04
#: Stop words of one letter are also initials, list items and column names: they cannot decide.
_MIN_LONG_STOP_WORDS = 2

_MIN_RUSSIAN_CHARS = 300  # shorter Cyrillic text may have none of its typical letters

#: First code point of a range, and the language of its script; "" for all that tells nothing.
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

#: Stop words of the languages that are searched differently; queries leave them out.
STOP_WORDS: dict[str, frozenset[str]] = {
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

#: Stop words of languages that are searched like English. Without them, a Danish page would be
#: taken for the nearest language above, and be stemmed as such.
_OTHER_STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "pl": """ale by być co czy dla do go i ich jak jako jest już lub ma może na nie niż od
            oraz po pod przez przy są się tak tego tej ten to tylko tym w we z za ze że""",
        "cs": """a aby ale až být bude by byl byla do i jak jako je jeho její jen jsou k která
            které který na nebo není o od po podle pro při s se si tak to u v ve z za že""",
        "sk": """a aby ako ale alebo až bol bola byť do i ich je jeho k ktoré ktorá ktorý na nie
            o od po podľa pre pri s sa si sú tak to u v vo z za že""",
        "sl": """ali bi bil bila da do ga in iz je jih k kako kar ker ki ko lahko med na ne ni
            njegov o ob od pa po pred pri s sa se so tako tem ter to v za že z""",
        "hr": """a ali bi bio da do ga i ili iz ih je jer kako kao koja koje koji li na nakon ne
            nije o od po pri s sa samo se su ta te to u uz za što""",
        "hu": """a az egy és hogy nem is ez azt volt van csak meg de ha mint már még ki vagy lesz
            volna el fel le be minden aki ami ezt után majd között szerint""",
        "ro": """a acest această ai al ale au ca care ce cea cel cu de decât din după este fi
            fost în la mai nu o pe pentru prin sau sa se si și sunt un unei unui va""",
        "sv": """alla att av blir bli de den det dig din du då efter eller en ett från för ha han
            har hon här i inte jag kan man med men mot när och om på sig sin ska som till
            under upp ut var vid vi vill är över""",
        "da": """af alle at blev blive da de den der deres det dig din du efter eller en er et
            for fra ham han har hun hvor i ikke ind jeg kan man med men mod når og også om
            op over på sig sin skal som til ud under var ved vil være""",
        "nb": """av alle at ble bli da de den der deres det deg din du etter eller en er et for
            fra ham han har hun hvor i ikke inn jeg kan man med men mot når og også om opp
            over på seg sin skal som til ut under var ved vil være""",
        "fi": """ei en että hän he ja jo joka jos kanssa kuin kun mutta myös ne niin nyt oli olla
            on ovat se sekä sen siitä tai tämä tässä vain voi""",
        "et": """aga ei et ja ka kas kes kui kuid ma mis mitte nad nende ning oli olid oma on või
            pole saab see seda selle siis ta tema tuleb veel välja üle""",
        "lt": """ar arba bei bet buvo būti dėl gali iki ir iš jei jis jo jos kad kaip kuri kurie
            kuris jų nes nuo o po per prie su tai tik už yra į""",
        "lv": """ar arī bet bija būt es gan ir jau ka kad kas kā lai ko kopā līdz nav no pa par
            pie pēc tas tikai to un uz vai var viņš viņa""",
        "tr": """ama bir bu çok daha de da değil diye en gibi hem her için ile ise kadar ki mi mı
            mu ne nasıl o olan olarak olduğu olup onu sonra şu tarafından tüm var ve veya ya
            yok""",
        "id": """ada adalah akan atau bagi bahwa dalam dan dari dapat dengan di ini itu jika juga
            karena ke kepada lebih mereka oleh pada saat saya sebagai secara sudah telah
            tidak untuk yang""",
        "ca": """a al als amb aquest aquesta com de del dels des el els en és entre és ha hi i la
            les li més no o on per perquè però què que se sense seva seu ser si són també un
            una va""",
    }.items()
}


_LANGUAGES_BY_WORD: dict[str, tuple[str, ...]] = {}
for _language, _words in (STOP_WORDS | _OTHER_STOP_WORDS).items():
    for _word in _words:
        _LANGUAGES_BY_WORD[_word] = (*_LANGUAGES_BY_WORD.get(_word, ()), _language)
_LANGUAGES_BY_LETTER = {
    word: languages for word, languages in _LANGUAGES_BY_WORD.items() if len(word) == 1
}
_UKRAINIAN = frozenset("іїєґІЇЄҐ")
_RUSSIAN = frozenset("ыэёЫЭЁ")
_RUSSIAN_SHARE = 1 / 500  # of these letters; Bulgarian and other Cyrillic text has none


def detect(text: str) -> str:
    """Return the language as two letters, or "" for another language or too little text."""
    sample = text[:_SAMPLE]
    if not sample.isascii():
        script = _script_language(sample)
        if script == "ru":
            return "ru" if _is_russian(sample) else ""
        if script != "latin":
            return script
    return _by_stop_words(sample)


def _script_language(sample: str) -> str:
    """Return the language of the dominant script, or "latin"."""
    long = len(sample) > _SCRIPT_STRIDE * _MIN_SCRIPT_CHARS
    seen = sample[::_SCRIPT_STRIDE] if long else sample
    if sum(char > _LAST_LATIN for char in seen) * 8 < len(seen):
        return "latin"
    letters = filter(str.isalpha, seen)
    counts = Counter(_NAMES[bisect_right(_STARTS, ord(char)) - 1] for char in letters)
    if counts["ja"] * 20 >= counts["ja"] + counts["zh"] > 0:  # kanji are Chinese
        counts["ja"] += counts.pop("zh", 0)
    # A Chinese character carries as much as several letters of a Latin word.
    counts["latin"] //= 4
    best, count = max(counts.items(), key=lambda item: item[1])
    return best if count else "latin"


def _is_russian(sample: str) -> bool:
    if not _UKRAINIAN.isdisjoint(sample):
        return False
    count = sum(char in _RUSSIAN for char in sample)
    return count >= _RUSSIAN_SHARE * len(sample) or len(sample) < _MIN_RUSSIAN_CHARS


def _by_stop_words(sample: str) -> str:
    words = sample.lower().split()
    votes = Counter(chain.from_iterable(filter(None, map(_LANGUAGES_BY_WORD.get, words))))
    count = max(votes.values(), default=0)
    best = [language for language in STOP_WORDS if votes[language] == count]
    if len(best) != 1:  # a tie, or a language that is searched like English
        return ""
    language = best[0]
    if count < _MIN_STOP_WORDS or count < _MIN_STOP_WORD_SHARE * len(words):
        return ""
    # The language must win without the votes of single letters too.
    votes.subtract(chain.from_iterable(filter(None, map(_LANGUAGES_BY_LETTER.get, words))))
    required = max(_MIN_LONG_STOP_WORDS, max(votes.values()))
    return language if votes[language] >= required else ""
