"""``queue.limits``: live settings of limit groups, stored on the server, in force from the next claim on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, join, key
from fairqueue._engine.replies import GroupCounts, Overbooked, RateCounts, UsesUnknown, identity, text
from fairqueue._engine.scan import escaped, scan
from fairqueue._engine.uses import find_uses
from fairqueue.clock import from_ms
from fairqueue.errors import ConfigurationError
from fairqueue.limits import guaranteed_slots, rate, slots
from fairqueue.states import LimitState, RateState
from fairqueue.validation import identifier

__all__ = ["LimitsControl"]


class LimitsControl:
    """``queue.limits``: the limit of each group, live. A group is a declared limit's name and a group id.

    Example:
        >>> await queue.limits.set("tenant", "acme", 5)
        >>> (await queue.limits.get("tenant", "acme")).limit
        5
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def set(self, group: str, id: str, limit: int | None, guaranteed: int | None = None) -> None:
        """Sets the most slots the group may hold: 0 admits nothing, None is unlimited. And what a tenant is guaranteed.

        A raised limit wakes who waits, with no completion needed; a lowered one starts nothing new until fewer
        are held, and stops nobody.

        While a tenant with work holds fewer than ``guaranteed`` slots, each slot that comes free goes to it before any
        tenant that has no guarantee or holds as much as its own, also at a shared group that is full. What it does not
        use is lent, and nobody is stopped for it: it comes back within one handler's time. Each call says both: without
        ``guaranteed`` the tenant has no guarantee from now on.

        Raises:
            ConfigurationError: no such limit is declared, the value is no limit, the guarantee is above it or not of a
                tenant, or those who use a shared group would be guaranteed more than its limit: by this guarantee, or by
                this limit of the group, which is lower and not 0.
            QueueFullError: the server is out of memory; nothing was changed.
            SettingsChangedError: others declare different settings all the time; nothing was changed.

        Example:
            >>> await queue.limits.set("tenant", "acme", 0)
            >>> await queue.limits.set("tenant", "acme", 10, guaranteed=3)
        """
        most = None if limit is None else slots("limit", limit)
        own = guaranteed_slots(group, most, guaranteed)
        await self._store(group, id, "none" if most is None else most, own)

    async def reset(self, group: str, id: str) -> None:
        """Goes back to the declared default, without a guarantee; who waits and fits now is woken.

        Raises:
            ConfigurationError: no such limit is declared, or those who use the group are guaranteed more than its default.

        Example:
            >>> await queue.limits.reset("tenant", "acme")
        """
        await self._store(group, id, "")

    async def set_rate(
        self, group: str, id: str, n: int | None, per: timedelta | float = 60, burst: int = 1
    ) -> None:
        """Sets how many messages of the group may be delivered in a time; None removes the rate.

        Every delivery takes a token, redeliveries too; one that is released before a handler began gives it back. A group
        that was left alone has ``burst`` of them; one more comes each ``per / n``. So in any time t at most
        ``burst + n * t / per`` messages are delivered, by the instants of the server's clock at which they were claimed.
        Who is out of tokens waits without being asked for, holds nobody up, and wakes idle workers when the next one
        comes. The limit of the group holds too. A change acts from the next claim on: tokens that were there stay, up to
        the new ``burst``.

        Args:
            group: a declared limit.
            id: the group's id.
            n: 1 to 1,000,000 deliveries, or None.
            per: in this time, a ``timedelta`` or seconds; up to 366 days.
            burst: 1 to 100,000 at once after a pause. 1 spaces them evenly.

        Raises:
            ConfigurationError: no such limit is declared, or a wrong argument.
            QueueFullError: the server is out of memory; nothing was changed.
            SettingsChangedError: others declare different settings all the time; nothing was changed.

        Example:
            >>> await queue.limits.set_rate("tenant", "acme", 100, per=60, burst=20)
        """
        wanted = (0, 0, 0) if n is None else rate(n, per, burst)
        await self._change(group, id, lambda name, revision: self._engine.run_replayable(
            self._engine.calls.set_rate, name, wanted, revision
        ), lifts=n is None)  # fmt: skip

    async def _store(self, group: str, id_: str, value: int | str, guaranteed: int | None = None) -> None:
        async def send(name: str, revision: str) -> bool:
            set_limit = self._engine.calls.set_limit
            done = await self._engine.run_replayable(set_limit, name, value, guaranteed, revision)
            if isinstance(done, UsesUnknown):
                await find_uses(self._engine, id_, first=True)
                return True
            return _not_refused(id_, guaranteed, done)

        await self._change(group, id_, send, lifts=value in ("", "none"))

    async def _change(
        self, group: str, id_: str, send: Callable[[str, str], Awaitable[bool]], *, lifts: bool
    ) -> None:
        async def once() -> bool:
            revision = await (self._lifted(group, id_) if lifts else self._declared(group))
            return await send(_named(group, id_), revision)

        while await self._engine.agreement.as_declared(once):
            pass  # more waiters fit than one script may wake

    async def set_backlog(self, tenant: str, limit: int | None) -> None:
        """Sets how many messages of a tenant may wait, ready or delayed, before enqueues of more are refused.

        An enqueue that would exceed it raises ``BacklogFullError`` and stores nothing of that tenant. What waits already
        stays, and what comes back (retries, releases, redriven letters) is never refused. 0 accepts nothing,
        None removes it. ``tenants.get(tenant).backlog`` tells it.

        Raises:
            ConfigurationError: that is no such number. QueueFullError: the server is out of memory; nothing was changed.

        Example:
            >>> await queue.limits.set_backlog("acme", 10_000)
        """
        name = identifier("tenant", tenant)
        value = None if limit is None else slots("limit", limit)
        await self._engine.run_replayable(self._engine.calls.set_backlog, name, value)

    async def get(self, group: str, id: str) -> LimitState:
        """The group as it is now, also when nothing was ever counted in it.

        Raises:
            ConfigurationError: no such limit is declared.

        Example:
            >>> state = await queue.limits.get("tenant", "nobody")
            >>> state.held, state.limit
            (0, 10)
        """
        return await self._engine.agreement.as_declared(lambda: self._look(group, id))

    async def list(self, group: str) -> AsyncIterator[LimitState]:
        """Every group of that limit with a limit or a rate of its own, a held slot or a waiter.

        Raises:
            ConfigurationError: no such limit is declared.

        Example:
            >>> [(state.id, state.held) async for state in queue.limits.list("tenant")]
            [('umbrella', 2)]
        """
        await self._engine.connect()
        await (
            self._engine.agreement.learn()
        )  # with no group to look at, no call would tell that the limit is gone
        await self._declared(group)
        seen: set[str] = set()
        async for name in self._known(group):
            if name not in seen:
                seen.add(name)
                yield await self._engine.agreement.as_declared(
                    partial(self._look, group, name.partition(US)[2])
                )

    async def _known(self, group: str) -> AsyncIterator[str]:
        match = escaped(group) + US + "*"
        for command, kind in (("HSCAN", "limits"), ("HSCAN", "rates"), ("SSCAN", "groups")):
            async for raw in scan(self._engine, command, key(self._engine.calls.root, kind), match):
                yield text(raw)

    async def _look(self, group: str, id_: str) -> LimitState:
        revision, name = await self._declared(group), _named(group, id_)
        return _state(group, id_, await self._engine.run(self._engine.calls.group_state(name, revision)))

    async def _declared(self, group: str) -> str:
        """The revision of the settings that declare it: a call that carries it is refused when they have changed."""
        await self._engine.connect()
        if group not in self._names():
            await self._engine.agreement.learn()  # it may have been declared since
        if group not in self._names():
            known = ", ".join(self._names()) or "none is: a program declares them"
            raise ConfigurationError(f"expected group to be a declared limit ({known}), got {group!r:.80}")
        return self._engine.settings.revision

    async def _lifted(self, group: str, id_: str) -> str:
        """As ``_declared``, but what is stored can be lifted after its limit is declared no more: it holds messages still."""
        try:
            return await self._declared(group)
        except ConfigurationError:
            for kind in ("limits", "rates"):
                stored = key(self._engine.calls.root, kind)
                if await self._engine.command("HEXISTS", stored, _named(group, id_)):
                    return self._engine.settings.revision
            raise

    def _names(self) -> tuple[str, ...]:
        return tuple(limit.name for limit in self._engine.limits)


def _not_refused(id_: str, guaranteed: int | None, done: bool | Overbooked) -> bool:
    if not isinstance(done, Overbooked):
        return done
    group = done.group.replace(US, " ")
    with_this = f" with {guaranteed} for {id_!r:.80}" if guaranteed else ""
    raise ConfigurationError(
        f"expected the guarantees of those who use {group} to be at most its limit of {done.limit}, got"
        f" {done.guaranteed}{with_this}"
    )


def _named(group: str, id_: str) -> str:
    return join(group, identifier("id", id_))


def _state(group: str, id_: str, counts: GroupCounts) -> LimitState:
    return LimitState(
        group=group, id=id_, limit=counts.limit, held=counts.held, waiting=counts.waiting,
        holders=sorted(map(identity, counts.holders)), rate=counts.rate and _rate(counts.rate),
        guaranteed=counts.guaranteed,
    )  # fmt: skip


def _rate(counts: RateCounts) -> RateState:
    return RateState(
        n=counts.n, per=timedelta(milliseconds=counts.per), burst=counts.burst, tokens=counts.tokens,
        next_at=None if counts.next_at < 0 else from_ms(counts.next_at),
    )  # fmt: skip
