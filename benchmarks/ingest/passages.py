"""Passages and questions that retrieval is measured on; written for this purpose.

There are four passages for each topic. *Alike* questions use words of the passage, *paraphrases*
avoid them. A ranking is any function from a question to passage numbers, best first.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Ranking = Callable[[str], Sequence[int]]

TEXT = """
## bees
- A colony that is about to swarm builds queen cells along the lower edge of the comb. Remove them
  or divide the hive before the first warm week of May.
- Varroa mites are treated with oxalic acid in winter, when there is no brood for them to hide in.
- Honey with more than twenty percent water ferments in the jar; check it with a refractometer.
- Bees find their way home by the position of the sun and tell others the way with a dance.
## bridges
- Suspension bridges carry the deck on hangers from a main cable that is anchored at both ends.
- Expansion joints let the deck lengthen in summer; when they clog with gravel, the abutments crack.
- Steel girders are inspected for fatigue every two years, first at welds near the bearings.
- The old stone arch was too narrow for lorries, so a second bridge was built upstream in 1974.
## bread
- Sourdough rises more slowly than dough with yeast, and keeps fresh longer because it is acid.
- Steam in the first ten minutes of baking keeps the crust soft, so that the loaf can open fully.
- Rye flour has little gluten: the loaf stays dense and is baked in a tin.
- Leave the dough in the refrigerator overnight, and it will taste better and be easier to shape.
## contracts
- Either party may terminate this agreement with ninety days' written notice to the other.
- The supplier's total liability is limited to the fees paid in the twelve months before the claim.
- Neither party shall disclose confidential information to third parties for five years.
- Disputes are settled by arbitration in Geneva; the language of the proceedings is English.
## invoices
- Payment is due within thirty days of the invoice date. Interest of eight percent is charged after.
- Please quote the order number on every invoice; otherwise we have to send it back unpaid.
- A credit note is issued for goods that are returned undamaged within two weeks.
- Value added tax is shown separately for each rate, together with the number of the seller.
## employment
- Employees receive twenty-eight days of paid leave a year, which expire at the end of March.
- Overtime is paid at one and a half times the hourly rate, or taken as time off.
- During the probation period of six months, two weeks' notice is enough for both sides.
- Parents may stay at home for up to three years after the birth of a child and keep their job.
## databases
- A covering index holds every column that a query reads, so the table itself is not touched.
- Vacuum frees the space of deleted rows; without it the table and its indexes keep growing.
- Write-ahead logging lets readers go on while one connection writes to the database.
- Two transactions that lock the same rows in opposite order wait for each other forever.
## networks
- A router drops packets when its queue is full; the sender notices and slows down.
- DNS answers are cached for as long as their time to live says, so a change is not seen at once.
- The handshake of TLS agrees on a cipher and proves the identity of the server by a certificate.
- Address translation lets many computers of a household share a single public address.
## passwords
- Passwords are stored as salted hashes made by a slow function, never in clear.
- After ten failed sign-ins the account is locked for fifteen minutes and its owner gets a message.
- A second factor, such as a code from a phone, protects an account whose password was stolen.
- Access tokens expire after an hour; a refresh token obtains another without asking the user.
## printers
- If the paper jams, open the rear cover and pull the sheet out slowly in the direction of travel.
- Faded print means that the toner is nearly empty: shake the cartridge or replace it.
- The printer goes to sleep after five minutes and needs about ten seconds to warm up again.
- Hold the green button until the light flashes to restore the factory settings.
## cars
- Replace the timing belt every hundred thousand kilometres; if it breaks, the valves are destroyed.
- The battery of a parked car loses its charge in cold weather, and the starter only clicks.
- Worn brake pads squeal; when they grind, the discs are being damaged too.
- Check the tyre pressure when the tyres are cold, and add a little for a full load.
## bicycles
- A chain that has stretched by one percent wears out the sprockets and should be changed.
- To mend a puncture, roughen the tube around the hole, apply glue, wait, then press on the patch.
- The saddle is at the right height if the leg is nearly straight at the lowest point of the pedal.
- Hydraulic brakes feel spongy when there is air in the line and must be bled.
## medicine
- High blood pressure has no symptoms for years, but damages the heart, the kidneys and the eyes.
- Antibiotics do not help against colds, which are caused by viruses.
- Children with a fever need to drink often; a lukewarm bath brings the temperature down.
- Insulin is kept in the refrigerator; the pen in use may stay at room temperature for a month.
## sleep
- Light from screens in the evening delays the hormone that makes us tired.
- Most adults need between seven and nine hours a night; too little weakens memory.
- Shift workers rest better in a dark, cool room with the telephone switched off.
- People who snore loudly and stop breathing for moments should be examined for apnoea.
## gardens
- Tomatoes planted too early die in a late frost; wait until the middle of May.
- Slugs are kept away from young lettuce by a ring of copper or by collecting them at night.
- Compost needs air: turn the heap every month and mix wet kitchen waste with dry leaves.
- Prune apple trees in late winter, and cut out branches that grow inwards.
## forests
- Bark beetles spread in spruce that has been weakened by drought; felled trunks must be removed.
- Old beeches with hollow trunks are left standing, since owls and bats nest in them.
- After the fire, birch and aspen were the first trees to return to the burnt slope.
- Forest soil stores more carbon than the trunks and leaves above it.
## weather
- Warm air rises over the land in the afternoon and draws a breeze in from the sea.
- Hail forms when strong updraughts carry raindrops into the freezing upper part of a cloud.
- Fog in the valley dissolves as soon as the sun heats the ground.
- Hurricanes lose their force over land, because they are fed by the warmth of the ocean.
## oceans
- The tide is highest when sun, moon and earth stand in line.
- Coral bleaches when the water stays too warm and the algae that feed it are expelled.
- Deep currents carry cold, salty water from the poles towards the equator for centuries.
- Sound travels four times faster in water than in air, and whales are heard over great distances.
## space
- A comet's tail points away from the sun, whatever direction the comet is flying in.
- Astronauts lose bone and muscle in weightlessness and train two hours a day against it.
- The rover drills into rocks that were laid down by water on Mars billions of years ago.
- Light from the nearest star takes more than four years to reach us.
## energy
- Solar panels yield less when they are hot; a gap beneath them lets the air cool them.
- A heat pump moves warmth from outside into the house and needs a quarter of it as electricity.
- Wind turbines are stopped in storms, and their blades turned out of the wind.
- Pumped storage lifts water into an upper lake when power is cheap, and lets it down at peak times.
## houses
- Mould grows in corners where moist air meets cold walls; airing several times a day prevents it.
- Insulating the roof saves more heating than new windows, and costs less.
- The load-bearing wall may only be opened after a beam has been put in above.
- Lime plaster lets walls breathe and is preferred for old buildings.
## plumbing
- Shut off the main valve before you change a washer, then open the tap to drain the pipe.
- Water hammer is the bang in pipes when a valve closes fast; an air chamber absorbs it.
- Descale the boiler yearly where water is hard, or it uses more gas and finally fails.
- A slow drain is often cleared with a plunger; caustic cleaners attack old pipes.
## music
- The violin is tuned in fifths, and its bow is rubbed with rosin so that it grips the strings.
- A piano goes out of tune when the air gets drier in the heating season.
- Jazz musicians improvise over a sequence of chords that all of them know.
- Singers warm up with scales and humming to protect their vocal cords.
## painting
- Oil paint dries from outside in; thick layers need months before they can be varnished.
- Watercolour paper is stretched wet on a board so that it does not buckle.
- Blue from lapis lazuli was dearer than gold, and reserved for the robes of the Virgin.
- Restorers clean old pictures with cotton swabs and test each solvent in a corner first.
## history
- The plague killed a third of Europe's people within five years, and wages rose afterwards.
- Printing with movable type made books cheap, and ideas spread that rulers could not stop.
- The railway reached the village in 1868; the mill closed, and the young moved to the city.
- Salt was taxed so heavily that smuggling it became a trade along the coast.
## schools
- Pupils who explain a problem to others understand it better themselves.
- The timetable changes after the autumn holidays; sports moves to Thursday afternoon.
- Reading aloud to small children every day enlarges their vocabulary for life.
- Exams may be repeated once; whoever fails again has to take the course anew.
## travel
- Passports must be valid for six months beyond the day of return.
- Passengers whose flight is more than three hours late can claim up to six hundred euros.
- Trekking above four thousand metres calls for days of rest, or headache and nausea set in.
- Night trains must be booked early; the compartments for four are sold out first.
## animals
- Dogs pant to cool themselves, because they can hardly sweat.
- Cats bring dead mice to their owners, as they would to teach their kittens.
- Swallows leave for Africa in September and come back to the same nest in spring.
- Hedgehogs sleep through the winter under leaves; do not wake them, they would starve.
## economy
- When the central bank raises interest rates, loans get dearer and fewer houses are built.
- A weak currency helps exporters, while imported goods cost more.
- Shares of small companies fluctuate more than those of large ones.
- Unemployment fell in spring, as hotels and building sites were hiring.
## logistics
- Pallets are wrapped in film and labelled with a bar code before they leave the warehouse.
- Cold chains are monitored by loggers in the lorry; above eight degrees the vaccine is discarded.
- Containers wait for days in the port when cranes break down or crews are on strike.
- Goods that sell best are stored next to the packing tables, to shorten the walk.
## safety
- Wear goggles and gloves when handling acids, and always pour the acid into the water.
- Extinguish burning fat with a lid, never with water, which would explode into steam.
- Assembly points are marked in green; do not use the lifts in case of fire.
- Machines are locked and tagged before anyone reaches into them for cleaning.
"""


class Question(NamedTuple):
    """A query, and the number of the passage that answers it."""

    words: str
    passage: int


class Recall(NamedTuple):
    """The share of questions whose passage is the first hit, or among the first five."""

    first: float
    five: float


def passages() -> list[str]:
    """Return all passages in order, four for each topic."""
    lines = [line for line in TEXT.strip().splitlines() if not line.startswith("## ")]
    return " ".join(lines).removeprefix("- ").replace("   ", " ").split(" - ")


def recall(ranking: Ranking, questions: Iterable[Question]) -> Recall:
    """Rank the passages for every question and count the right ones."""
    answers = [(list(ranking(asked.words)), asked.passage) for asked in questions]
    first = sum(found[:1] == [passage] for found, passage in answers)
    five = sum(passage in found[:5] for found, passage in answers)
    return Recall(first / len(answers), five / len(answers))


def _questions(lines: str) -> list[Question]:
    """Parse lines of the form `topic number: question`, with numbers from 1."""
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
