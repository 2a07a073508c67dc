"""Places for uploads: some for each user and tenant, so that nobody takes them all."""

import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

import anyio

#: Uploads that are received at a time: in all, of a tenant, and of a user. Others wait their turn.
IN_ALL, OF_TENANT, OF_USER = 16, 8, 4


class UploadSlots:
    """The places of one API process; used on its event loop only."""

    def __init__(self) -> None:
        self._all = anyio.CapacityLimiter(IN_ALL)
        self._shares: WeakValueDictionary[tuple[str, ...], anyio.CapacityLimiter] = (
            WeakValueDictionary()
        )

    @contextlib.asynccontextmanager
    async def taken(self, tenant: str, user: str) -> AsyncIterator[None]:
        """Take a place, after those of the same user and tenant who came before."""
        # The narrowest first: who waits for their own place keeps nobody else's.
        of_user, of_tenant = self._share(OF_USER, tenant, user), self._share(OF_TENANT, tenant)
        async with of_user, of_tenant, self._all:
            yield

    def _share(self, most: int, *whose: str) -> anyio.CapacityLimiter:
        found = self._shares.get(whose)
        if found is None:
            # Kept as long as somebody holds or awaits a place of it.
            found = self._shares[whose] = anyio.CapacityLimiter(most)
        return found
