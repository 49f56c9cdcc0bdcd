"""A pool of worlds that step together: few of them while it films.

Such an engine renders all its worlds for a frame of one of them, so that six films would cost the frames of
every world beside them, at every step. They are taken in a wave of their own, by an engine of that size.
"""

from collections.abc import Collection, Mapping

from morph_vla.engines.pool import Answer, Begin, Build, LocalPool, Message, Pool, no_time


class WavePool(Pool):
    """The slots of an engine whose worlds move together: one that `make(count)` makes when a wave begins.

    It has `slots` worlds, or for a filmed wave only those that are told to begin: the first slots' then.
    """

    def __init__(self, make: Build, slots: int):
        self.slots, self.width, self.waves = slots, 1, True
        self.spent = no_time()
        self._make = make
        self._pool: LocalPool | None = None

    def usable(self, slot: int) -> bool:
        return 0 <= slot < self.slots

    def send(self, messages: Mapping[int, Message]) -> None:
        """Carry messages out; raises as `LocalPool.send` does."""
        begun = [message for message in messages.values() if isinstance(message, Begin)]
        if begun and len(begun) == len(messages):
            filmed = any(message.film for message in begun)
            self._pool = self._of(max(messages) + 1 if filmed else self.slots)
        if self._pool is not None:
            self._pool.send(messages)

    def _of(self, count: int) -> LocalPool:
        """A pool of `count` worlds; the last one's are given back first, for there may be one engine only."""
        if self._pool is not None and self._pool.slots == count:
            return self._pool
        self.close()
        pool = LocalPool(self._make(count))
        pool.spent = self.spent
        return pool

    def receive(self, slots: Collection[int]) -> dict[int, Answer]:
        return self._pool.receive(slots) if self._pool is not None else {}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None
