"""The error tree and its RPC codes."""

from __future__ import annotations

import inspect

import pytest

from lambda_svc import errors


def test_every_error_is_public_documented_and_in_one_branch():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
    branches = (errors.CallerError, errors.OperatingError, errors.ProgrammerError)
    for cls in classes:
        assert cls.__name__ in errors.__all__ and cls.__name__ in errors.__doc__ and cls.__doc__
        if cls is not errors.LambdaError and cls not in branches:
            assert sum(issubclass(cls, branch) for branch in branches) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest("user_id", "x", "a number"), "INVALID_ARGUMENT"),
        (errors.NotFound("no"), "NOT_FOUND"),
        (errors.PackageRejected("no"), "FAILED_PRECONDITION"),
        (errors.FormulaError("no", 3), "FAILED_PRECONDITION"),
        (errors.ArenaExhausted("no"), "RESOURCE_EXHAUSTED"),
        (errors.DeadlineExceeded("no"), "DEADLINE_EXCEEDED"),
        (errors.Cancelled("no"), "CANCELLED"),
        (errors.EngineUnavailable("no"), "UNAVAILABLE"),
        (errors.EngineError("no"), "INTERNAL"),
        (errors.PlanError("no"), "INTERNAL"),
        (ValueError("no"), "INTERNAL"),
    ],
)
def test_status_code_name(error, code):
    assert errors.status_code_name(error) == code


def test_invalid_request_says_field_got_and_expected():
    error = errors.InvalidRequest("candidate_ids", "3 bytes", "a multiple of 8")
    assert str(error) == "candidate_ids: got 3 bytes; expected a multiple of 8"
    assert (error.field, error.got, error.expected) == ("candidate_ids", "3 bytes", "a multiple of 8")
