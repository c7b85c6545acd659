from __future__ import annotations

import inspect
import pickle

import pytest

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
