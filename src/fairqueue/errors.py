"""Every exception fairqueue raises, under one base.

::

    FairQueueError
    ├── ConfigurationError    (ValueError)       a wrong option, found when the object is made
    ├── InvalidMessageError   (ValueError)       a message that cannot be accepted; nothing was stored
    ├── PayloadTooLargeError  (ValueError)       an encoded payload above max_payload_bytes; nothing was stored
    ├── LeaseLostError                           the lease is no longer ours; nothing was changed
    ├── MessageNotFoundError  (LookupError)      no such message in that place
    ├── DamagedKeyError                          a key of the namespace holds another type than fairqueue wrote
    ├── QueueUnavailableError (ConnectionError)  the server cannot serve us, after the client's own retries
    ├── QueueClosedError                         the queue was closed, by us; it is opened again by connect() or on enter
    ├── QueueFullError                           the server is out of memory; nothing was stored
    │   └── BacklogFullError                     too many messages of a tenant wait; none of its new ones was stored
    ├── SettingsChangedError                     the settings changed each time a call was tried; nothing was done
    └── SchemaMismatchError                      another version of the library wrote this namespace

Where a built-in exception means the same, the class is also that one, so code that knows nothing of fairqueue
(``except ConnectionError``) still does the right thing.
"""

from __future__ import annotations

__all__ = [
    "BacklogFullError",
    "ConfigurationError",
    "DamagedKeyError",
    "FairQueueError",
    "InvalidMessageError",
    "LeaseLostError",
    "MessageNotFoundError",
    "PayloadTooLargeError",
    "QueueClosedError",
    "QueueFullError",
    "QueueUnavailableError",
    "SchemaMismatchError",
    "SettingsChangedError",
]


class FairQueueError(Exception):
    """The base of every error fairqueue raises on purpose."""


class ConfigurationError(FairQueueError, ValueError):
    """An option is wrong: the text names the option, what was expected, and the value that was given.

    Raised when the object that takes the option is made, never later in the middle of work.

    >>> RetryPolicy(max_attempts=0)
    Traceback (most recent call last):
    fairqueue.errors.ConfigurationError: expected max_attempts to be an integer from 1 to 2147483647, got 0
    """


class InvalidMessageError(FairQueueError, ValueError):
    """A message cannot be accepted: a bad tenant, id, time, cost, metadata or payload. Nothing was stored."""


class PayloadTooLargeError(FairQueueError, ValueError):
    """The encoded payload is larger than the queue's ``max_payload_bytes``. Nothing was stored."""


class LeaseLostError(FairQueueError):
    """The lease is not the message's newest one any more, or was settled already. Nothing was changed.

    Somebody else runs, ran or will run the message; work done under the lost lease may be done a second time.
    """


class MessageNotFoundError(FairQueueError, LookupError):
    """There is no message of that tenant and id in the place the call looked at."""


class DamagedKeyError(FairQueueError):
    """A key of the namespace holds another type than fairqueue wrote: somebody's hand, or another program's.

    Most such keys stop nobody, and are mended by whoever meets them. This is raised where an answer would be a lie, or
    where nothing can be done without the key. ``fairqueue doctor`` names it; ``audit(fix=True)`` mends what can be told
    from the messages. A call that writes may have done a part: repeated after that it does the rest.
    """


class QueueUnavailableError(FairQueueError, ConnectionError):
    """The server cannot be reached, is loading its data or is read-only.

    Raised after the client's own retries with backoff. Whether the last call took effect is unknown; every call
    of fairqueue that writes is safe to repeat with the same arguments.
    """


class QueueClosedError(FairQueueError):
    """The queue was closed by its program, before the call or while it was under way.

    ``connect()`` and entering it (``async with queue``) open it again.
    """


class QueueFullError(FairQueueError):
    """The server is out of memory: nothing was stored. Claims and settles still work, so the backlog drains."""


class BacklogFullError(QueueFullError):
    """More messages of a tenant would wait than its backlog may hold: none of its new ones was stored.

    ``tenant`` is the first one refused, ``depth`` how many of its messages wait, ready or delayed, ``limit`` how many
    may. Other tenants' messages of the same call are stored; ``stored`` are the ids of all that are.

    Example:
        >>> await queue.limits.set_backlog("acme", 2)
        >>> await queue.enqueue(3, tenant="acme")
        Traceback (most recent call last):
        fairqueue.errors.BacklogFullError: expected at most 2 messages of tenant 'acme' to wait, 2 do: 1 more was refused
    """

    tenant: str = ""
    depth: int = 0
    limit: int = 0
    stored: tuple[str, ...] = ()


class SettingsChangedError(FairQueueError):
    """The settings under this name changed again each time the call was tried; this last try did nothing.

    A client that meets settings it does not know learns them and repeats its call by itself. This is for those that
    never come to rest: programs that declare different limits, say, and are started over and over. Safe to repeat.
    """


class SchemaMismatchError(FairQueueError):
    """Another version of the library wrote this namespace, in a form this version must not touch.

    Nothing was written. The text says which version is too old and what to do.
    """
