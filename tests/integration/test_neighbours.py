"""A tenant that does its worst leaves the others their share of the API and of the workers."""

from __future__ import annotations

import pytest

from tests.attacker import attacking
from tests.integration.processes import Site
from tests.neighbours import ASKED, neighbours

ROUNDS = 15
#: Answers that the attacker gets for each one of the victim. Without turns they are as many as it
#: has connections: thirty and more.
MOST = 8


@pytest.mark.timeout(300)
def test_a_tenant_that_asks_for_everything_at_once_gets_little_more_than_one_that_asks_in_turn(
    embedded: Site,
):
    with (
        neighbours(embedded, documents=10) as both,
        attacking(both.url, both.book, "i.burns", both.tokens) as end,
    ):
        both.seconds_to_read()  # the attack has begun when a child is left for this
        for _ in range(ROUNDS):
            for name in ASKED:
                both.ask(name)
        got = end()
        answered = sum(n for what, n in got.items() if what in ("search 200", "list 200"))
        assert answered >= ROUNDS, got
        assert answered / (ROUNDS * len(ASKED)) < MOST, got
        embedded.open_gate()
