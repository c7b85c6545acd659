"""Every key of a namespace: its name, its type, what it holds and who writes it.

All keys of one namespace share the prefix ``fq:{<name>:<shard>}:``, so they live in one cluster slot. The
hash tag comes first, so braces in tenants' names do no harm. Parts of a name are joined by the unit
separator (0x1f), which no tenant, queue, pool, group or id may contain: names can never run into each other.

Composite names
    ``mid``    ``tenant US id``: the identity of a message
    ``group``  ``limit US group id``: what a limit counts, for example ``org US acme``
    ``lane``   ``tenant US queue US pool [US limit US group id]...``: the messages of one queue that share every group
    ``scope``  where turns are taken: ``p US pool`` (its tenants), ``t US pool US tenant`` (the tenant's lanes),
               ``g US pool US group`` (the tenants that wait at a group)
"""

from __future__ import annotations

from dataclasses import dataclass

US = "\x1f"
RS = "\x1e"  # between the selectors of a pause
SCHEMA = "2"


@dataclass(frozen=True, slots=True)
class Key:
    """One key (or, with ``of``, one family of keys) of the data model."""

    type: str
    holds: str
    writers: str
    of: str = ""


KEYS: dict[str, Key] = {
    "settings": Key(
        "hash",
        "schema, scheduler, quantum, limit declarations, retry defaults, revision, last change",
        "configure",
    ),
    "counters": Key(
        "hash",
        "seq (order of acceptance), claims (for tokens), dead (order of death)",
        "enqueue, claim, settle, redrive",
    ),
    "head": Key("hash", "mid -> packed header: the one truth about where a message is", "every transition"),
    "body": Key("hash", "mid -> metadata and payload bytes, never unpacked by a script", "enqueue, settle"),
    "leases": Key(
        "hash",
        "mid -> token, consumer, claimed at, attempt, budget, lane (so its groups)",
        "claim, settle, reclaim",
    ),
    "deadlines": Key("zset", "mid by the instant its lease expires", "claim, extend, settle, reclaim"),
    "delayed": Key("zset", "mid by due time", "enqueue, settle, promote"),
    "delayed_names": Key(
        "zset",
        "the mids in `delayed`, each with score 0, so in the order of tenants",
        "enqueue, settle, promote",
    ),
    "expiring": Key(
        "zset",
        "mid by the instant by which it must have been started, while it waits for that",
        "enqueue, claim, settle, promote, reclaim",
    ),
    "notes": Key("hash", "mid -> reason, instant and text of the last error", "settle, reclaim"),
    "limits": Key(
        "hash",
        "group -> limit, or limit name -> declared default; 'none' is unlimited",
        "set_limit, configure",
    ),
    "pauses": Key(
        "hash",
        "tenant RS queue RS pool (0x1e; '' is any) -> since when, by whom, why",
        "pause, resume",
    ),
    "weights": Key("hash", "tenant -> weight, of those that are not 1", "set_weight"),
    "backlogs": Key("hash", "tenant -> how many of its messages may wait", "set_backlog"),
    "rates": Key("hash", "group -> n, per (ms), burst: so many deliveries in that time", "set_rate"),
    "arrivals": Key(
        "hash",
        "group -> instant at which all tokens of its rate are there again: ms, and n-ths of one",
        "claim, settle, set_rate",
    ),
    "rated": Key(
        "zset", "groups at which somebody waits for a token, by the instant it comes", "claim, wake, set_rate"
    ),
    "guarantees": Key(
        "hash", "tenant -> slots it is guaranteed; 0 while its first are being set", "set_limit, find_uses"
    ),
    "uses": Key(
        "zset",
        "shared groups of the messages of a tenant with a guarantee, by the instant until which that counts; '' when all are known",
        "enqueue, redrive, set_limit, find_uses",
        of="tenant",
    ),
    "users": Key(
        "zset",
        "tenants with a guarantee that use a shared group, by the same instants; expires with the last",
        "enqueue, redrive, find_uses",
        of="group",
    ),
    "groups": Key("set", "groups with slots or waiters: what reconcile visits", "claim, settle"),
    "dirty": Key(
        "hash",
        "group -> 'dirty' (a slot could not be freed) or 'closed' (being rebuilt)",
        "settle, reconcile",
    ),
    "served": Key(
        "hash",
        "run of the server, when it was first seen to serve, and since when leases have outlived no outage",
        "reclaim",
    ),
    "stopped": Key("hash", "lanes whose key could not be read -> when", "claim, wake, tidy"),
    "vtime": Key("hash", "scope -> virtual time", "claim, wake"),
    "present": Key("hash", "tenant -> messages it has, dead ones included", "enqueue, settle, purge"),
    "totals": Key("hash", "counters of the namespace, for ever", "every transition"),
    "pools": Key("set", "pools with claimable or waiting work", "enqueue, claim"),
    "doubtful": Key(
        "set",
        "tenant US instant: a mark of each script at work on its dead letters; what stays is of one that was cut",
        "settle, reclaim, redrive, purge, reconcile",
    ),
    "dead_tenants": Key("set", "tenants with dead letters", "settle, reclaim, redrive, purge"),
    "workers": Key("zset", "worker by its last sign of life", "beat"),
    "worker_info": Key("hash", "worker -> JSON: host, pid, pools, concurrency, version", "beat"),
    "lane": Key(
        "zset", "ready messages by (priority, seq)", "enqueue, claim, settle, promote, reclaim", of="lane"
    ),
    "ring": Key(
        "zset", "who takes turns in a scope, by the tag of the next turn", "enqueue, claim, wake", of="scope"
    ),
    "below": Key(
        "zset",
        "who of a ring may hold less than its guarantee, and goes first; by the same tags",
        "enqueue, claim, settle, reclaim, reconcile, set_limit",
        of="scope",
    ),
    "tags": Key(
        "zset", "tags still ahead of virtual time of those who left a scope", "claim, wake", of="scope"
    ),
    "deficits": Key(
        "zset",
        'by "drr": what tenants that take turns may be served before they wait for another round',
        "claim, settle, set_weight",
        of="pool",
    ),
    "waiting": Key(
        "zset",
        "a tenant's lanes parked at a group, or woken and with more messages, by their own tags",
        "claim, wake",
        of="pool US group US tenant",
    ),
    "parked": Key("hash", "a tenant's parked lanes -> group", "claim, wake", of="pool US tenant"),
    "blocked": Key("set", "tenants with parked lanes", "claim, wake", of="pool"),
    "woken": Key(
        "hash",
        "lane -> how many batons of a group it holds, what they charged, tag and number of the first; a field for each further",
        "wake, claim",
        of="pool US group",
    ),
    "waiters": Key("set", "pools in which somebody waits at a group or was woken", "claim, wake", of="group"),
    "slots": Key("hash", "mid -> token: one held slot each", "claim, settle, reclaim, reconcile", of="group"),
    "dead": Key(
        "zset",
        "ids of dead letters in the order of their death",
        "settle, reclaim, redrive, purge",
        of="tenant",
    ),
    "tenant": Key("hash", "counters of a tenant, while it has messages", "every transition", of="tenant"),
    "call": Key(
        "string",
        "last call of a client's stream, for replay, and to tell one that arrives late; expires",
        "enqueue, claim, settle, redrive, purge, set_limit, set_rate, configure, reclaim, reconcile",
        of="session US stream",
    ),
    "seen": Key(
        "string",
        "until when this id is not accepted again (dedupe_for); expires",
        "enqueue",
        of="tenant US id",
    ),
    "service": Key(
        "hash",
        "pool US tenant -> what it was served in a minute, and its waits; the last 64 minutes, then it expires",
        "claim, settle",
        of="minute modulo 64",
    ),
    "bell": Key("list", "at most one token: somebody idle should claim", "enqueue, wake, claim", of="pool"),
    "lock": Key("string", "who runs a maintenance duty; expires", "maintenance", of="duty"),
}

# What may be left when all work is done: settings (a rate with the tokens taken from it) and counters stay until reset,
# lanes that were broken by hand until reconcile has looked at them again; the rest expires or is bounded.
REMAINS = frozenset({
    "settings", "counters", "limits", "guarantees", "uses", "users", "pauses", "weights", "backlogs", "rates", "arrivals", "totals", "stopped", "workers",
    "worker_info", "served", "seen", "service", "call", "bell", "lock",
})  # fmt: skip


# What nothing else can tell again: messages, their payloads, their order, and what operators set. The doctor names these
# when they hold another type, and leaves them to a human.
IRREPLACEABLE = frozenset({"head", "body", "counters", "limits", "pauses", "weights", "backlogs", "rates"})


# Indexes, records of leases, counters and locks: a script that meets one holding another type removes it and goes on, for
# everybody but who was in it; reconcile writes it again from the messages.
INDEXES = (
    "leases", "deadlines", "delayed", "delayed_names", "expiring", "ring", "below", "tags", "deficits", "waiting", "parked", "blocked", "woken", "waiters", "pools", "groups", "vtime", "stopped",
    "dead_tenants", "doubtful", "tenant", "present", "totals", "bell", "notes", "lock", "dirty", "workers", "worker_info",
    "rated", "arrivals", "uses", "users",
)  # fmt: skip


def prefix(name: str, shard: int = 0) -> str:
    """The prefix of all keys of a namespace.

    Example:
        >>> prefix("default")
        'fq:{default:0}:'
    """
    return f"fq:{{{name}:{shard}}}:"


def join(*parts: str) -> str:
    """Parts of a composite name, joined by the unit separator.

    Example:
        >>> join("acme", "1").split(US)
        ['acme', '1']
    """
    return US.join(parts)


def key(root: str, kind: str, *parts: str) -> str:
    """The full name of one key; ``parts`` name the member of a family.

    Example:
        >>> key(prefix("default"), "dead", "acme")
        'fq:{default:0}:dead:acme'
    """
    return root + kind + (":" + join(*parts) if KEYS[kind].of else "")


def lane_name(tenant: str, queue: str, pool: str, groups: tuple[tuple[str, str], ...]) -> str:
    """The lane of a message; its tail lists the limit groups, so a lane tells all that must be known of it."""
    return join(tenant, queue, pool, *(part for group in groups for part in group))


def lua_keys() -> str:
    """The same table as Lua: ``k.head`` and, for a family, ``k.lane(name)``; root is KEYS[1].

    A family remembers the names it has made: scripts ask for the same few again and again.
    """
    lines = [
        "local root = KEYS[1]",
        "local function family(prefix)",
        "  local names = {}",
        "  return function(of)",
        "    local name = names[of]",
        "    if not name then",
        "      name = prefix .. of",
        "      names[of] = name",
        "    end",
        "    return name",
        "  end",
        "end",
        "local k = {",
    ]
    for kind, spec in KEYS.items():
        value = f"family(root .. '{kind}:')" if spec.of else f"root .. '{kind}'"
        lines.append(f"  {kind} = {value},")
    indexes = "\n".join(f"  {kind}={KEYS[kind].type}" for kind in INDEXES)
    return "\n".join([*lines, "}", "local INDEXES = [[", indexes, "]]"])
