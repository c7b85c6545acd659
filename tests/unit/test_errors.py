from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil

import pytest

import fairqueue
from fairqueue import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
BUILT_IN = {
    errors.ConfigurationError: ValueError,
    errors.InvalidMessageError: ValueError,
    errors.PayloadTooLargeError: ValueError,
    errors.MessageNotFoundError: LookupError,
    errors.QueueUnavailableError: ConnectionError,
}


def test_every_error_of_the_module_is_listed() -> None:
    defined = {
        name for name, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("error", CLASSES)
def test_one_base_catches_every_error(error: type[Exception]) -> None:
    assert issubclass(error, errors.FairQueueError)
    assert error is errors.FairQueueError or error.__name__.endswith("Error")


@pytest.mark.parametrize(("error", "built_in"), BUILT_IN.items())
def test_code_that_knows_only_built_in_errors_catches_it(
    error: type[Exception], built_in: type[Exception]
) -> None:
    assert issubclass(error, built_in)


@pytest.mark.parametrize("error", CLASSES)
def test_the_text_survives_a_pickle(error: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(error("the server is away")))
    assert type(copy) is error
    assert str(copy) == "the server is away"


@pytest.mark.parametrize("error", CLASSES)
def test_the_tree_in_the_docstring_has_the_error_and_its_second_base(error: type[Exception]) -> None:
    line = next(line for line in (errors.__doc__ or "").splitlines() if error.__name__ in line)
    assert error not in BUILT_IN or f"({BUILT_IN[error].__name__})" in line


def test_no_class_of_an_error_is_private() -> None:
    """Who catches what they meet has to be able to name it; the demo's are its own."""
    for module in pkgutil.walk_packages(fairqueue.__path__, "fairqueue."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    raised, found = [errors.FairQueueError], set()
    while raised:
        for one in raised.pop().__subclasses__():
            raised.append(one)
            found.add(one)
    known = {
        one for one in found if one.__module__.startswith("fairqueue.") and ".demo." not in one.__module__
    }
    assert known == set(CLASSES) - {errors.FairQueueError}
