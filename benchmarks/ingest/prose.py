"""Generated prose: the same in every run, and as varied as real text.

Embedders cache words, so variety matters: words follow Zipf's law over about thirty thousand, mixed
with names and numbers. A hundred thousand words contain about ten thousand different ones, slightly
more than a handbook of that size.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, product

_SMALL = """
the of and to in a is that for it as was with be by on not he this are or his from at which but
have an had they you were there one all we can her has been if more when will would who so no said
what up its about than into them only other time these two may then do first any my now such like
our over me even most made after also did many must before through where much your way well should
because each just those how too
"""
_STEMS = """
account act adapt align anchor apply arrang assess balanc bear bind board bound bridg build call
carri cast caus chang chart claim clear clerk coast collect command compar compos concern condens
conduct connect consid consult contain content control convers cord correct cost count cover craft
creat cross culture current cycl danger deal debat declar defin deliv depend deriv design detect
develop direct discharg display distanc divid doubt draft draw drift durat earn edit effect elect
embark employ enabl engag enter equip estim evid examin exchang exist expand expect explor export
express extend fabric factor fail farm fast field figur final financ firm fish flow focus follow
forc form found frame freight front function gather general govern grade grant ground group grow
guard guid harbour harvest haul heat hold hous identif imag impli import improv includ indic
industr inform inspect install instruct insur intend invest invit involv judg keep label labour
land launch lead learn lectur lend level licens limit list load local long maintain manag
manufactur map mark market mast match measur merchant method mill mine model mount move nation
natur navig notic number object observ offer open operat order organ orient outlin output pack
paint paper part pass path pattern permit pilot place plan plant plot point port posit post pour
power practis present press prevent price print privat problem produc profit project promis
protect provid public pump purchas quarter question quot rail rang rate reach read reason receiv
record reduc refer reform region regul relat releas remain repair report requir research reserv
resolv rest result return review road roll rope rout sail salt sampl scale season second secur
select sens separat serv settl shape share shelter shift ship shore signal site slate smith sort
sound spread stag stand station stat stock storag strength structur stud submit suppl support
survey suspend system tank target tax teach tender test text tide timber tool tow trace trade
train transfer transport travel treat trial truck turn unit uphold use valu vari vessel view visit
voyag wage walk wall warrant watch water weight wheel wind work yard yield
"""
_BEGINS = ("re", "un", "over", "inter", "under", "co")
_ENDS = (
    "e", "ed", "ing", "er", "ers", "es", "ion", "ions", "ment", "able", "al", "ally", "ance",
    "ive",
)  # fmt: skip
_PERTINENT = 0.6  # share of a sentence's words that belong to its subject
_SYLLABLES = "al ber car dun el fen gar hol in kel lor mar nor ost pel quen ros sel tor ur ven"


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return the words, most frequent first, and their cumulative weights."""
    words, dice = _SMALL.split(), random.Random(7)  # noqa: S311
    for begins in ("",), _BEGINS:  # words without a prefix are the frequent ones
        made = list(dict.fromkeys(b + s + e for b, s, e in product(begins, _STEMS.split(), _ENDS)))
        dice.shuffle(made)
        words += made
    # Flattened at the head: no English word makes up a tenth of a text.
    return words, list(accumulate((rank + 10) ** -1.35 for rank in range(len(words))))


@cache
def _sums(count: int, flattened: int) -> list[float]:
    """Return cumulative weights by Zipf's law."""
    return list(accumulate(1 / (rank + flattened) for rank in range(count)))


class Prose:
    """An endless text, determined by its seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311

    def subject(self) -> list[str]:
        """Return the words that a text about one subject uses more often than others."""
        words = _vocabulary()[0]
        first = len(_SMALL.split())
        return self._dice.choices(words[first:], cum_weights=_sums(len(words) - first, 10), k=40)

    def sentence(self, subject: Sequence[str] = ()) -> str:
        """Return one sentence, optionally about a subject."""
        dice = self._dice
        words, sums = _vocabulary()
        chosen = dice.choices(words, cum_weights=sums, k=dice.randint(8, 26))
        if subject:
            own = dice.choices(subject, cum_weights=_sums(len(subject), 2), k=len(chosen))
            chosen = [
                each if dice.random() < _PERTINENT else other
                for each, other in zip(own, chosen, strict=True)
            ]
        spot = dice.randrange(1, len(chosen))
        odd = dice.random()
        if odd < 0.3:
            chosen[spot] = "".join(dice.choices(_SYLLABLES.split(), k=3)).capitalize()
        elif odd < 0.6:
            chosen[spot] = f"{dice.randrange(1, 20_000):,}"
        else:
            chosen[spot] += ","
        text = " ".join(chosen)
        return f"{text[0].upper()}{text[1:]}."

    def paragraph(self, length: int) -> str:
        """Return sentences with at least `length` characters in total."""
        found: list[str] = []
        while length > 0:
            found.append(self.sentence())
            length -= len(found[-1]) + 1
        return " ".join(found)

    def page(self, length: int = 3_000) -> list[str]:
        """Return the paragraphs of a page with about `length` characters."""
        return [self.paragraph(length // 4 - 60) for _ in range(4)]


def pooled(
    seed: int, *, pool: int = 8_000, paragraphs: int = 4, sentences: int = 7
) -> Iterator[list[str]]:
    """Yield pages assembled from a pool of sentences, endlessly; this is faster."""
    prose, dice = Prose(seed), random.Random(seed)  # noqa: S311
    known = [prose.sentence() for _ in range(pool)]
    while True:
        yield [" ".join(dice.choices(known, k=sentences)) for _ in range(paragraphs)]
