"""Company reports made by code, and questions about them whose pages are known.

Each report has a cover, prose, statements and notes, as annual and quarterly reports do. Pages
seldom name the company or the year; file names mostly do, and some are those of a scanner. A
question is worded unlike its page. It belongs to the tuning half or to the report half by a hash of
its wording, so weights chosen on one half are not tested on the same words.
"""

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.ingest.prose import Prose
from quire.demo import samples

_FIRST = [
    "Alder",
    "Borgo",
    "Cindra",
    "Delphi",
    "Ember",
    "Fjordland",
    "Garnet",
    "Halden",
    "Ionix",
    "Jasper",
    "Kestrel",
    "Lumen",
]
_SECOND = ["Works", "Foods", "Energy", "Motors", "Retail", "Pharma", "Software", "Shipping"]
_YEARS = range(2015, 2020)
#: One report in this many has a name that says nothing.
_SCANS = 7
_QUESTIONS_EACH = 4


class Question(NamedTuple):
    """A question, and the report and page that answer it."""

    words: str
    report: int
    page: int
    is_tuning: bool


class Report(NamedTuple):
    """A report: its file name, its pages, and the number of the page of each topic."""

    name: str
    pages: list[list[str]]
    page_of: dict[str, int]
    company: str
    year: int


#: Topic of a page → heading, sentences or rows of a table; `#` becomes a number, `@` the year.
_PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cash flow": (
        "CONSOLIDATED STATEMENTS OF CASH FLOWS",
        (
            "(in millions) Year ended December 31, @",
            "Net income # #",
            "Depreciation and amortization # #",
            "Purchases of property, plant and equipment (#) (#)",
            "Acquisitions of businesses, net of cash acquired (#) (#)",
            "Repurchases of common stock (#) (#)",
            "Dividends paid (#) (#)",
            "Net cash provided by operating activities # #",
        ),
    ),
    "income": (
        "CONSOLIDATED STATEMENTS OF INCOME",
        (
            "(in millions, except per share data) Year ended December 31, @",
            "Net sales # #",
            "Cost of goods sold # #",
            "Selling, general and administrative expenses # #",
            "Research and development # #",
            "Income before income taxes # #",
            "Provision for income taxes # #",
            "Net income # #",
            "Diluted earnings per share # #",
        ),
    ),
    "balance": (
        "CONSOLIDATED BALANCE SHEETS",
        (
            "(in millions) December 31, @",
            "Cash and cash equivalents # #",
            "Trade receivables, net # #",
            "Inventories # #",
            "Goodwill # #",
            "Total assets # #",
            "Accounts payable # #",
            "Long-term debt # #",
            "Total shareholders' equity # #",
        ),
    ),
    "equity": (
        "CONSOLIDATED STATEMENTS OF SHAREHOLDERS' EQUITY",
        (
            "Common stock, additional paid-in capital, retained earnings, treasury stock",
            "Balance at January 1 # # #",
            "Net income # #",
            "Cash dividends declared (#)",
            "Share-based compensation # #",
            "Balance at December 31, @ # # #",
        ),
    ),
    "segments": (
        "NOTE 14. SEGMENT INFORMATION",
        (
            "We report three segments: Americas, Europe and Asia Pacific.",
            "Net sales: Americas # #, Europe # #, Asia Pacific # #",
            "Segment operating income: Americas # #, Europe # #, Asia Pacific # #",
            "Total assets by segment # # #",
        ),
    ),
    "debt": (
        "NOTE 8. BORROWINGS",
        (
            "Senior notes due 2027, fixed rate of #% # #",
            "Revolving credit facility, expires in 2023 # #",
            "The facility requires an interest coverage ratio of at least # to 1. We complied.",
            "Maturities of long-term debt: @ #, thereafter #",
        ),
    ),
    "taxes": (
        "NOTE 10. INCOME TAXES",
        (
            "Current: federal # #, state # #, foreign # #. Deferred: federal # #",
            "Statutory rate applied to income before income taxes #%",
            "Unrecognized tax benefits at December 31, @ # #",
            "Valuation allowance (#) (#)",
        ),
    ),
    "leases": (
        "NOTE 12. LEASES",
        (
            "We lease stores, warehouses and vehicles under noncancelable agreements.",
            "Future minimum payments under operating leases: # # # # #",
            "Rent expense was # in @.",
        ),
    ),
    "pensions": (
        "NOTE 11. RETIREMENT BENEFITS",
        (
            "Benefit obligation at beginning of year # #",
            "Service cost # #, interest cost # #, actuarial loss # #",
            "Fair value of plan assets # #. Funded status (#) (#)",
        ),
    ),
    "assets": (
        "NOTE 5. PROPERTY, PLANT AND EQUIPMENT",
        (
            "Land # #, buildings and improvements # #, machinery # #",
            "Less accumulated depreciation (#) (#)",
            "Depreciation expense was # in @.",
        ),
    ),
    "intangibles": (
        "NOTE 6. GOODWILL AND INTANGIBLE ASSETS",
        (
            "Trademarks # #, customer relationships # #, patents # #",
            "Amortization expense for each of the next five years: # # # # #",
            "We tested goodwill for impairment; fair value exceeded carrying value.",
        ),
    ),
    "legal": (
        "ITEM 3. LEGAL PROCEEDINGS",
        (
            "We are a defendant in several lawsuits, among them a class action on product labels.",
            "In @ a jury in Delaware returned a verdict of # million against us. We have appealed.",
        ),
    ),
    "risks": (
        "ITEM 1A. RISK FACTORS",
        (
            "Our results depend on the price of raw materials such as steel, cotton and crude oil.",
            "A failure of our computer systems, or an attack on them, could disrupt operations.",
            "The loss of a major customer would harm our business.",
        ),
    ),
    "business": (
        "ITEM 1. BUSINESS",
        (
            "We employ about # people full time, of whom a third are covered by union agreements.",
            "We sell through distributors and our own stores in # countries.",
            "Our principal competitors are larger and have more resources.",
        ),
    ),
    "discussion": (
        "ITEM 7. MANAGEMENT'S DISCUSSION AND ANALYSIS",
        (
            "Net sales increased #% in @, of which currency effects were #%.",
            "Gross margin was #% compared with #% in the prior year because of lower freight cost.",
            "We expect to spend about # million on new plants next year.",
        ),
    ),
    "governance": (
        "ITEM 10. DIRECTORS AND EXECUTIVE OFFICERS",
        (
            "Our board has nine members, of whom seven are independent.",
            "The chief executive, aged 5#, was appointed in @ after serving as treasurer.",
        ),
    ),
    "auditor": (
        "REPORT OF INDEPENDENT REGISTERED PUBLIC ACCOUNTING FIRM",
        (
            "We have audited the accompanying statements. In our opinion they present fairly, in "
            "all material respects, the financial position as of December 31, @.",
        ),
    ),
    "shares": (
        "ITEM 5. MARKET FOR REGISTRANT'S COMMON EQUITY",
        (
            "Our shares are listed on the New York Stock Exchange. There were # holders of record.",
            "High and low sales prices by quarter: # # # # # # # #",
        ),
    ),
}  # fmt: skip

#: Topic → questions about it; {c} is the company, {y} the year.
_ASKED: dict[str, tuple[str, ...]] = {
    "cash flow": (
        "What was the capital expenditure of {c} in FY{y}?",
        "How much did {c} spend on buying back its own shares in {y}?",
        "{c} {y} cash generated from operations",
        "Calculate the capex of {c} for fiscal year {y}, in millions.",
    ),
    "income": (
        "What is the revenue of {c} for FY{y}?",
        "{c} {y} diluted EPS",
        "How high was SG&A at {c} in {y}? Answer in USD millions.",
        "Did {c} make a profit in {y}?",
    ),
    "balance": (
        "What were the accounts receivable of {c} at the end of FY{y}?",
        "{c} {y} cash on hand",
        "What did {c} owe its suppliers at year end {y}?",
        "Using the balance sheet, compute the quick ratio of {c} for FY{y}.",
    ),
    "equity": (
        "Stock compensation booked in equity by {c} in {y}",
        "How did retained earnings of {c} change during FY{y}?",
    ),
    "segments": (
        "Which region contributed most to sales of {c} in {y}?",
        "{c} FY{y} operating profit by geography",
    ),
    "debt": (
        "Which covenants does the credit line of {c} have in {y}?",
        "When do the bonds of {c} mature, according to the FY{y} report?",
        "{c} {y} loans outstanding",
    ),
    "taxes": (
        "What is the effective tax rate of {c} in FY{y}?",
        "Deferred taxes of {c}, {y}",
        "uncertain tax positions {c} {y}",
    ),
    "leases": (
        "What rental commitments did {c} have in FY{y}?",
        "How much rent did {c} pay in {y}?",
    ),
    "pensions": (
        "Is the pension plan of {c} underfunded in {y}?",
        "{c} {y} pension liabilities and plan assets",
    ),
    "assets": (
        "What is the net PP&E of {c} at the end of FY{y}?",
        "{c} {y} fixed assets by class",
    ),
    "intangibles": (
        "What are the brands and patents of {c} worth in FY{y}?",
        "Has {c} written down goodwill in {y}?",
    ),
    "legal": (
        "What litigation does {c} face in {y}?",
        "{c} court judgment {y}",
    ),
    "risks": (
        "Is {c} exposed to commodity costs, according to the FY{y} filing?",
        "{c} {y} cyber security threats",
    ),
    "business": (
        "How many employees does {c} have in FY{y}?",
        "Who are the rivals of {c} in {y}?",
    ),
    "discussion": (
        "How did foreign exchange affect the growth of {c} in FY{y}?",
        "Why did the gross profit margin of {c} change in {y}?",
    ),
    "governance": (
        "How large is the board of directors of {c} in {y}?",
        "Who leads {c} as CEO in FY{y}?",
    ),
    "auditor": ("Who audits {c} and what is their opinion for {y}?",),
    "shares": (
        "On which exchange is the stock of {c} traded in {y}?",
        "share price range of {c} in FY{y}",
    ),
}


def reports() -> list[Report]:
    """Make all reports, the same each time."""
    companies = [f"{first} {second}" for first in _FIRST for second in _SECOND][::2]
    listed = [(company, year) for company in companies for year in _YEARS]
    return [_report(number, *each) for number, each in enumerate(listed)]


def _report(number: int, company: str, year: int) -> Report:
    dice = random.Random(number)  # noqa: S311
    prose = Prose(1_000 + number)
    order = list(_PAGES)
    dice.shuffle(order)
    pages = [[f"{company}, Inc.", f"ANNUAL REPORT {year}", "Form 10-K", prose.paragraph(60)]]
    page_of = {}
    for topic in order:
        heading, lines = _PAGES[topic]
        page_of[topic] = len(pages) + 1
        filled = [_filled(line, year, dice) for line in lines]
        around = [prose.paragraph(dice.choice((40, 120))) for _ in range(dice.randrange(3))]
        running = [f"{company} {year}"] if dice.random() < 0.2 else []
        pages.append([*running, heading, *around[:1], *filled, *around[1:]])
        if dice.random() < 0.5:
            mentions = [_filled(dice.choice(_PAGES[dice.choice(order)][1]), year, dice)]
            pages.append([prose.paragraph(150), *mentions, prose.paragraph(150)])
    joined = company.replace(" ", "")
    name = f"{joined}_{year}_10K.pdf" if number % _SCANS else f"scan{number:04}.pdf"
    return Report(name, pages, page_of, company, year)


def _filled(line: str, year: int, dice: random.Random) -> str:
    parts = line.replace("@", str(year)).split("#")
    return "".join(part + f"{dice.randrange(10, 99_000):,}" for part in parts[:-1]) + parts[-1]


def questions(made: Sequence[Report]) -> list[Question]:
    """Return the questions of both halves."""
    dice, found = random.Random(11), []  # noqa: S311
    for topic, templates in _ASKED.items():
        for template in templates:
            is_tuning = zlib.crc32(template.encode()) % 2 == 0
            for number in dice.sample(range(len(made)), min(_QUESTIONS_EACH, len(made))):
                one = made[number]
                words = template.format(c=one.company, y=one.year)
                found.append(Question(words, number, one.page_of[topic], is_tuning))
    return found


def write(folder: Path, made: Sequence[Report]) -> None:
    """Write the reports as PDFs."""
    for one in made:
        pages = [samples.text_page(page) for page in one.pages]
        (folder / one.name).write_bytes(samples.pdf(pages))
