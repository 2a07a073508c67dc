"""The text of the sample documents: the handbook of a fictional harbour.

Twelve chapters of three pages. Each page starts with sentences of its chapter and continues with
records whose names and figures differ from page to page, so that every page can be found.
"""

from collections.abc import Iterator

CHAPTERS: dict[str, tuple[str, ...]] = {
    "Arrivals": (
        "Every vessel calls the harbour office on channel twelve one hour before it passes the"
        " outer buoy and states its draught, its cargo and the number of people on board.",
        "A berth is given in the order of the calls, except that a vessel with passengers or with"
        " live animals goes first.",
        "The pilot boards at the yellow buoy in daylight and at the lighthouse after sunset.",
        "A vessel that arrives without a call waits at anchor until the office has a free hour.",
    ),
    "Tides and depth": (
        "The depth over the sill is measured each morning by a weighted line and written on the"
        " board at the lock.",
        "Spring tides add nearly two metres to the channel, neap tides take most of that away.",
        "A keel must clear the sill by half a metre; the lock keeper may ask for more in swell.",
        "After a storm from the west the sand bar moves, and old charts must not be trusted.",
    ),
    "Cargo": (
        "Grain is unloaded by suction, timber by crane, and barrels by hand with a ramp.",
        "Dangerous goods are named in the manifest by their number and kept apart from food.",
        "A crane lifts at most eight tonnes in calm air and five when the wind gauge shows six.",
        "Damage is noted before the hatch is closed, with a photograph and two signatures.",
    ),
    "Customs": (
        "Goods from abroad stay in the bonded warehouse until the duty is paid or waived.",
        "A declaration names the sender, the receiver, the value and the country of origin.",
        "Officers may open one crate in twenty; the choice is made by drawing lots.",
        "An appeal against a duty is sent in writing within thirty days of the notice.",
    ),
    "Warehouses": (
        "The four sheds along the quay are numbered from the lock towards the sea.",
        "Shed two is heated and keeps paper, cloth and instruments dry through the winter.",
        "Rats are counted every quarter; more than five in a week calls for the terrier.",
        "Rent is reckoned by the square metre and the day, and the first three days are free.",
    ),
    "Repairs": (
        "The slipway takes hulls of up to thirty metres at high water.",
        "Copper paint is scraped under a tent so that no flakes reach the basin.",
        "The smith forges shackles and hinges to measure; castings come from the foundry inland.",
        "A hull is sounded with a hammer, plank by plank, before it returns to the water.",
    ),
    "Weather": (
        "The barometer is read at six, noon, six and midnight, and the reading is telegraphed.",
        "A black cone on the mast warns of a gale within twelve hours.",
        "Fog is announced by two strokes of the bell each minute from the end of the pier.",
        "Ice has closed the basin in nine winters since records began, never for a full month.",
    ),
    "Fees": (
        "The fee for a night at the quay depends on the length of the vessel and the season.",
        "Fishermen of the town pay by the year and may lend their berth to a cousin.",
        "An unpaid bill grows by one part in a hundred for every month that it is late.",
        "Training ships, hospital ships and vessels in distress pay nothing.",
    ),
    "Safety": (
        "Life rings hang every forty metres and are thrown, never carried, to someone in water.",
        "Fire buckets are filled on Saturdays, and the pump is tried on the first of the month.",
        "Nobody walks under a load, and nobody stands within the bight of a rope.",
        "The siren sounds three long blasts when the quay must be left at once.",
    ),
    "The lighthouse": (
        "The lamp turns once in thirty seconds and is seen from eighteen nautical miles.",
        "The keeper climbs one hundred and forty-two steps to trim the wick and wind the clock.",
        "A spare mantle, two gallons of oil and a whistle are kept in the lantern room.",
        "Birds that strike the glass in autumn are counted for the museum of natural history.",
    ),
    "The archive": (
        "Log books are kept for a hundred years, letters for thirty, and receipts for ten.",
        "Each volume has a number on its spine that is entered in the register of the archive.",
        "Readers leave bags and ink at the door and turn pages with clean, dry hands.",
        "A lost volume is replaced by a copy made from the duplicate at the county court.",
    ),
    "The ferry": (
        "The ferry to the island leaves at eight, eleven, two and five, and later in summer.",
        "Bicycles stand on the lower deck, carts are tied fore and aft, horses are led on last.",
        "When waves break over the landing stage the captain alone decides whether to sail.",
        "Mail is carried in a sealed bag that is handed over against a receipt.",
    ),
}

_VESSELS = (
    "Marigold", "Northern Heron", "Perseverance", "Silver Eel", "Anna Katharina", "Third of May",
    "Cormorant", "Good Intent", "Lapwing", "Queen of the Sound", "Tern",
)  # fmt: skip
_CARGOES = (
    "barley", "slate", "oak planks", "salted herring", "roof tiles", "wool", "copper wire",
    "printing paper", "lamp oil", "seed potatoes", "glass panes", "cider", "rope",
)  # fmt: skip
_PLACES = (
    "Aldermouth", "Brackwater", "Castle Point", "Dunmere", "Eastry Sands", "Fallow Bay",
    "Grey Havens Quay", "Holm Island", "Inverloch", "Kettle Cove",
)  # fmt: skip
_PEOPLE = (
    "Ida Brandt", "Jonas Peel", "Mira Okafor", "Tomas Lindqvist", "Ruth Varga", "Elias Noor",
    "Clara Whitby", "Henrik Dahl", "Amina Rossi",
)  # fmt: skip
_RECORDS = (
    "On day {day} the {vessel} brought {weight} tonnes of {cargo} from {place}.",
    "{person} measured {depth} metres at the sill and signed the book for the {vessel}.",
    "A load of {cargo} bound for {place} was held for {days} days until {person} cleared it.",
    "The {vessel} asked for a berth of {length} metres and left for {place} on day {day}.",
    "{person} wrote to {place} about {weight} crates of {cargo} that were never collected.",
    "Because of the wind the {vessel} lay off {place} for {days} days with {cargo} on board.",
)


def pages() -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and the paragraphs of each of the 36 pages."""
    for chapter, (title, sentences) in enumerate(CHAPTERS.items(), start=1):
        for part in range(1, 4):
            number = (chapter - 1) * 3 + part
            rotated = sentences[part - 1 :] + sentences[: part - 1]
            records = [
                " ".join(map(_record, range(first, first + 6)))
                for first in range(number * 18, number * 18 + 18, 6)
            ]
            yield (
                f"{chapter}.{part} {title}",
                [" ".join(rotated[:2]), *records, " ".join(rotated[2:])],
            )


def _record(number: int) -> str:
    # Step sizes coprime to the list lengths produce every combination of entries.
    return _RECORDS[number % len(_RECORDS)].format(
        vessel=_VESSELS[number * 7 % len(_VESSELS)],
        cargo=_CARGOES[number * 5 % len(_CARGOES)],
        place=_PLACES[number * 3 % len(_PLACES)],
        person=_PEOPLE[number * 4 % len(_PEOPLE)],
        day=number % 365 + 1,
        days=number * 11 % 19 + 2,
        weight=number * 37 % 460 + 12,
        depth=f"{number * 13 % 40 / 10 + 2:.1f}",
        length=number * 17 % 60 + 9,
    )
