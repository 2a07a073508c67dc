"""Turns: requests of one tenant run one at a time while other tenants ask too.

The requests of a process share an interpreter and a pool of threads, so whoever asks for forty
things at once would leave others a fortieth of it. A tenant waits for itself instead: its requests
run in the order in which they came. As long as only one tenant asks, there is no limit. Who shows
a token or cookie for the first time waits for others at the same address who do.

So many wait at most: who closes connections and opens others could queue without end. A question
whose client is gone when its turn comes is not answered.

A request has its turn from before it is authenticated until its response begins. What streams, or
waits in a queue of its own, ends its turn before.
"""

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from time import monotonic

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.errors import Transient

#: Requests of one tenant that run at a time, while others ask too.
AT_A_TIME = 1
#: Requests of one tenant, or of one address, that may wait for a turn.
MAX_WAITING = 200
#: Seconds after its last request for which a tenant counts as asking.
ASKING_SECONDS = 10.0
#: Tokens and cookies whose tenant is remembered; the first are forgotten first.
MAX_SECRETS = 10_000
_STATE = "tenant_turn"
_ASKING = frozenset({"GET", "HEAD"})
#: A tenant, or an address from which somebody asks who is not known yet; whether it is a tenant.
Whose = tuple[str, bool]


class TenantTurns:
    """The turns of one API process; used on its event loop only."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._tenants: OrderedDict[int, str] = OrderedDict()
        self._running: Counter[Whose] = Counter()
        self._waiting: defaultdict[Whose, deque[asyncio.Future[None]]] = defaultdict(deque)
        #: When each tenant asked last, the latest at the end.
        self._asked: OrderedDict[str, float] = OrderedDict()

    def tenant_of(self, secret: str) -> str | None:
        """Return whose token or cookie this was when it was last good, or None."""
        return self._tenants.get(hash(secret))

    def forget(self, secret: str) -> None:
        """Forget a token or cookie that is no longer good: it waits among the unknown from now."""
        self._tenants.pop(hash(secret), None)

    def remember(self, secret: str, tenant: str) -> None:
        """Remember whose token or cookie is good."""
        self._tenants[hash(secret)] = tenant
        while len(self._tenants) > MAX_SECRETS:
            self._tenants.popitem(last=False)

    async def enter(self, request: Request, tenant: str) -> None:
        """Wait for a turn, which ends with the response or by `end_turn`."""
        self._note(tenant)
        await self._enter(request, (tenant, True))

    async def enter_unknown(self, request: Request, address: str) -> None:
        """Wait for a turn of an address, from which somebody asks who is not known yet."""
        await self._enter(request, (address, False))

    async def _enter(self, request: Request, whose: Whose) -> None:
        must_wait = bool(self._waiting.get(whose)) or not self._may_run(whose)
        if must_wait:
            await self._wait(whose)
        else:
            self._running[whose] += 1
        request.scope.setdefault("state", {})[_STATE] = lambda: self._leave(whose)
        # Only of a request without a body, of which nothing can be lost by looking.
        if must_wait and request.method in _ASKING and await request.is_disconnected():
            end_turn(request)
            raise Transient("request: its client is gone.")

    async def _wait(self, whose: Whose) -> None:
        if len(self._waiting.get(whose, ())) >= MAX_WAITING:
            raise Transient(
                f"requests: {MAX_WAITING} of yours wait already. Try again in a moment.",
                retry_after=1.0,
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting[whose].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting[whose]:
                self._waiting[whose].remove(turn)
            else:
                self._leave(whose)  # it was its turn in the same moment
            raise

    def _leave(self, whose: Whose) -> None:
        self._running[whose] -= 1
        waiting = self._waiting[whose]
        while waiting and self._may_run(whose):
            turn = waiting.popleft()
            if not turn.cancelled():
                self._running[whose] += 1
                turn.set_result(None)
        if not waiting:
            del self._waiting[whose]
        if not self._running[whose]:
            del self._running[whose]

    def _may_run(self, whose: Whose) -> bool:
        _, is_tenant = whose
        is_alone = is_tenant and len(self._asked) < 2
        return is_alone or self._running[whose] < AT_A_TIME

    def _note(self, tenant: str) -> None:
        now = self._clock()
        self._asked[tenant] = now
        self._asked.move_to_end(tenant)
        while next(iter(self._asked.values())) < now - ASKING_SECONDS:
            self._asked.popitem(last=False)


def end_turn(request: Request) -> None:
    """End the turn of a request, because it streams or waits elsewhere from here on."""
    _end(request.scope)


class TurnMiddleware:
    """Ends the turn of a request when its response begins; pure ASGI, so nothing is buffered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def ending(message: Message) -> None:
            _end(scope)
            await send(message)

        try:
            await self._app(scope, receive, ending)
        finally:
            _end(scope)


def _end(scope: Scope) -> None:
    leave = scope.get("state", {}).pop(_STATE, None)
    if leave is not None:
        leave()
