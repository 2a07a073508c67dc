"""Whose requests run at a time in the API process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from starlette.requests import Request

from quire.api import tenant_turns
from quire.api.tenant_turns import MAX_WAITING, TenantTurns, TurnMiddleware, end_turn
from quire.errors import Transient


async def others_run() -> None:
    """Return when what is ready to run has run."""
    is_done = asyncio.Event()
    asyncio.get_running_loop().call_soon(is_done.set)
    await is_done.wait()


class Street:
    """Requests of tenants that run until they are told to end."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = TenantTurns(clock=lambda: self.now)
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._gone: set[str] = set()

    async def ask(self, *names: str) -> None:
        """Ask for each of `TENANTnumber`."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._serve(name))
            await others_run()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await others_run()

    def task(self, name: str) -> asyncio.Task[None]:
        return self._tasks[name]

    async def settled(self, names: Iterable[str]) -> None:
        """Wait until these have been answered, whatever the answer is."""
        await asyncio.gather(*(self._tasks[name] for name in names), return_exceptions=True)
        await others_run()

    async def drop(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await others_run()

    def leave(self, *names: str) -> None:
        """Close connections; the server goes on as if nothing had happened."""
        self._gone |= set(names)

    async def _received(self, name: str) -> dict[str, Any]:
        return {"type": "http.disconnect" if name in self._gone else "http.request"}

    async def _serve(self, name: str) -> None:
        request = Request(
            {"type": "http", "state": {}, "method": "GET"}, lambda: self._received(name)
        )
        try:
            await self.turns.enter(request, name.rstrip("0123456789"))
            self.running.append(name)
            await self._ends[name].wait()
        finally:
            if name in self.running:
                self.running.remove(name)
            end_turn(request)


def told(story: Callable[[Street], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story(Street()))


def test_the_only_tenant_that_asks_runs_everything_at_once():
    async def story(street: Street) -> None:
        await street.ask(*(f"acme{n}" for n in range(60)))
        assert len(street.running) == 60

    told(story)


def test_while_others_ask_a_tenant_waits_for_itself_in_order_and_nobody_else_does():
    async def story(street: Street) -> None:
        await street.ask("acme1", "other1", "acme2", "acme3", "other2", "third1")
        assert street.running == ["acme1", "other1", "third1"]
        await street.end("acme1")
        assert street.running == ["other1", "third1", "acme2"]
        await street.end("acme2")
        assert street.running == ["other1", "third1", "acme3"]

    told(story)


def test_a_tenant_that_asks_no_more_holds_nobody_back():
    async def story(street: Street) -> None:
        await street.ask("other1", "acme1", "acme2", "acme3")
        await street.end("other1")
        assert street.running == ["acme1"]
        street.now += tenant_turns.ASKING_SECONDS + 1
        await street.ask("acme4")
        await street.end("acme1")
        assert street.running == ["acme2", "acme3", "acme4"]

    told(story)


def test_a_request_whose_client_leaves_takes_no_turn_and_leaves_none_behind():
    async def story(street: Street) -> None:
        await street.ask("other1", "acme1", "acme2", "acme3")
        await street.drop("acme2")
        await street.drop("acme1")
        assert street.running == ["other1", "acme3"]
        await street.end("acme3")
        await street.ask("acme5")
        assert street.running == ["other1", "acme5"]

    told(story)


def test_a_turn_that_comes_when_its_client_leaves_is_passed_on():
    async def story(street: Street) -> None:
        await street.ask("other1", "acme1", "acme2", "acme3")
        street._ends["acme1"].set()
        await street._tasks["acme1"]  # acme2 has its turn now, and has not run yet
        street._tasks["acme2"].cancel()
        await asyncio.gather(street._tasks["acme2"], return_exceptions=True)
        await others_run()
        assert street.running == ["other1", "acme3"]

    told(story)


def test_a_turn_ends_when_the_response_begins():
    async def story(street: Street) -> None:
        seen: list[list[str]] = []

        async def app(scope, receive, send) -> None:
            await street.turns.enter(Request(scope), "acme")
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message) -> None:
            await others_run()
            seen.append(list(street.running))

        async def receive():
            return {"type": "http.disconnect"}

        await street.ask("other1", "acme1", "acme2")
        await street.end("acme1")
        await street.end("acme2")
        await street.ask("acme3")
        waiting = asyncio.create_task(
            TurnMiddleware(app)({"type": "http", "method": "POST"}, receive, send)
        )
        await others_run()
        await street.ask("acme4")
        await street.end("acme3")
        await waiting
        assert seen == [["other1", "acme4"]]

    told(story)


def test_the_secrets_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(tenant_turns, "MAX_SECRETS", 3)
    turns = TenantTurns()
    for number in range(5):
        turns.remember(f"s{number}", "acme")
    assert [turns.tenant_of(f"s{n}") for n in range(5)] == [None, None, "acme", "acme", "acme"]


def test_those_who_are_not_known_yet_wait_for_each_other_and_hold_no_tenant_back():
    async def story(street: Street) -> None:
        stranger = Request({"type": "http", "state": {}, "method": "POST"})
        await street.turns.enter_unknown(stranger, "192.0.2.1")
        second = Request({"type": "http", "state": {}, "method": "POST"})
        waiting = asyncio.create_task(street.turns.enter_unknown(second, "192.0.2.1"))
        await street.ask("acme1", "acme2")
        assert street.running == ["acme1", "acme2"]
        assert not waiting.done()
        end_turn(stranger)
        await waiting

    told(story)


def test_so_many_wait_and_the_next_one_is_told_to_come_back():
    async def story(street: Street) -> None:
        await street.ask("other1", "acme0")
        await street.ask(*(f"acme{n}" for n in range(1, MAX_WAITING + 2)))
        last = street.task(f"acme{MAX_WAITING + 1}")
        assert isinstance(last.exception(), Transient)
        assert sorted(street.running) == ["acme0", "other1"]
        await street.ask("other2")  # others wait in a line of their own
        await street.end("other1")
        assert sorted(street.running) == ["acme0", "other2"]

    told(story)


def test_who_has_gone_meanwhile_keeps_nobody_waiting():
    async def story(street: Street) -> None:
        await street.ask("other1", "acme0", *(f"acme{n}" for n in range(1, 8)))
        street.leave(*(f"acme{n}" for n in range(1, 7)))
        await street.end("acme0")
        await street.settled(f"acme{n}" for n in range(1, 7))
        assert sorted(street.running) == ["acme7", "other1"]

    told(story)


def test_a_token_that_is_no_longer_good_waits_among_the_unknown():
    turns = TenantTurns()
    turns.remember("secret", "acme")
    assert turns.tenant_of("secret") == "acme"
    turns.forget("secret")
    turns.forget("secret")
    assert turns.tenant_of("secret") is None
