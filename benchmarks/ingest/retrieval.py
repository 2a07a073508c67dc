"""How often the right passage comes first, or among the first five, for questions in other words.

*Alike* questions use words of the passage, *paraphrases* avoid them. A ranking is any function from
a question to the numbers of passages, best first; nothing here knows how it is made.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks.ingest.passages import TEXT

Ranking = Callable[[str], Sequence[int]]


class Question(NamedTuple):
    """What is asked, and the passage that answers it."""

    words: str
    passage: int


class Recall(NamedTuple):
    """The share of questions whose passage is first, and among the first five."""

    first: float
    five: float


def passages() -> list[str]:
    """Return all passages; four of each topic in order."""
    lines = [line for line in TEXT.strip().splitlines() if not line.startswith("## ")]
    return " ".join(lines).removeprefix("- ").replace("   ", " ").split(" - ")


def recall(ranking: Ranking, questions: Iterable[Question]) -> Recall:
    """Ask every question and count."""
    answers = [(list(ranking(asked.words)), asked.passage) for asked in questions]
    first = sum(found[:1] == [passage] for found, passage in answers)
    five = sum(passage in found[:5] for found, passage in answers)
    return Recall(first / len(answers), five / len(answers))


def _questions(lines: str) -> list[Question]:
    """Read `topic number: question`, numbers from 1."""
    topics = [line[3:] for line in TEXT.splitlines() if line.startswith("## ")]
    found = []
    for line in lines.strip().splitlines():
        place, _, words = line.partition(": ")
        topic, number = place.split()
        found.append(Question(words, topics.index(topic) * 4 + int(number) - 1))
    return found


ALIKE = _questions("""
bees 1: when does a colony swarm
bees 2: oxalic acid against varroa mites
bees 3: water content of honey refractometer
bridges 2: expansion joints clogged with gravel
bridges 3: inspection of steel girders for fatigue
bread 1: sourdough compared with yeast
bread 3: why is rye bread dense
contracts 1: terminate the agreement with notice
contracts 2: limit of the supplier's liability
contracts 4: arbitration in Geneva
invoices 1: interest when payment is late
invoices 3: credit note for returned goods
employment 1: how many days of paid leave
employment 3: notice during probation
databases 1: what is a covering index
databases 3: readers while a connection writes, write-ahead log
networks 2: how long are DNS answers cached
networks 3: certificate in the TLS handshake
passwords 1: salted password hashes
printers 1: remove jammed paper
printers 4: restore factory settings of the printer
cars 1: when to replace the timing belt
cars 4: check tyre pressure cold
bicycles 2: mend a puncture with a patch
bicycles 4: spongy hydraulic brakes
medicine 2: antibiotics for colds
medicine 4: storing insulin
gardens 2: protect lettuce from slugs
gardens 4: pruning apple trees
forests 1: bark beetles in spruce
weather 2: how hail forms
oceans 2: coral bleaching
space 1: direction of a comet's tail
energy 2: electricity needed by a heat pump
energy 4: pumped storage lake
houses 3: opening a load-bearing wall
plumbing 3: descale the boiler
painting 3: lapis lazuli blue
travel 2: compensation claim for a late flight
logistics 2: vaccine cold chain in the lorry
""")

PARAPHRASES = _questions("""
bees 4: how do insects navigate back to their nest
bridges 4: reason for constructing another river crossing
bread 2: moisture in the oven at the start
bread 4: letting it rest in the cold until morning
contracts 3: keeping secrets from outsiders
contracts 1: how can I cancel the deal
invoices 2: bill refused due to a missing reference
employment 2: compensation for working additional time
employment 4: mother or father taking care of a baby, career break
databases 4: deadlock
databases 2: reclaiming disk storage after removing records
networks 1: congestion on the internet
networks 4: several devices at home behind one IP
passwords 2: too many wrong login attempts
passwords 3: two-step verification with mobile
printers 2: pale pages, ink cartridge running out
cars 2: vehicle does not start in winter
cars 3: noise while stopping the automobile
bicycles 1: worn drivetrain replacement
bicycles 3: correct seat position for cyclists
medicine 1: hypertension is silent yet harms organs
medicine 3: kid with high temperature, what to do
sleep 1: smartphone use before bed
sleep 4: breathing pauses while sleeping
gardens 1: planting vegetables outdoors, danger of cold nights
forests 3: plants growing again after a wildfire
weather 4: why cyclones weaken after landfall
oceans 1: lunar influence on sea level
space 4: distance to the closest sun beyond ours
energy 1: photovoltaic efficiency and heat
houses 1: damp and fungus in the flat
houses 2: reduce heating bill of an attic
plumbing 4: blocked sink
history 1: black death and labour costs
travel 3: altitude sickness in the mountains
animals 3: migratory birds returning
economy 1: mortgage prices and monetary policy
safety 2: kitchen oil on fire
""")
