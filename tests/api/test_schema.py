"""Schemathesis over the OpenAPI document: whatever is sent, no fault of ours, and what is answered
is what the document says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.house import House, sailing_book

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
#: Requests a route and way of making them: valid ones, and ones with something wrong in them.
#: For a long search, other random ones each time: SCHEMA_EXAMPLES=200.
LONG = int(os.environ.get("SCHEMA_EXAMPLES", "0"))
EXAMPLES = LONG or 5
#: A stream has no end, and revoking tokens would end the test's own.
LEFT_OUT = {("GET", "/api/events"), ("DELETE", "/api/tokens/{token_id}")}


def operations(house: House) -> Iterator[Any]:
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", house.api)
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if (operation.method.upper(), operation.path) not in LEFT_OUT:
            yield operation


def tried(operation: Any, mode: GenerationMode, headers: dict[str, str]) -> None:
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=EXAMPLES, derandomize=not LONG, database=None, deadline=None,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def run(case: Any) -> None:
        case.call_and_validate(headers=headers, checks=CHECKS)

    run()


@pytest.mark.timeout(7200 if LONG else 300)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_answers_are_as_the_document_says(house: House, mode: GenerationMode):
    house.upload("book.pdf", sailing_book())
    house.submit()
    headers = {"Authorization": str(house.operator.headers["authorization"])}
    wrong = {}
    for operation in operations(house):
        try:
            tried(operation, mode, headers)
        except Unsatisfiable:
            continue  # a route without parameters has no request that is wrong
        except (Exception, BaseExceptionGroup) as error:
            parts = getattr(error, "exceptions", [error])
            wrong[operation.label] = [str(each)[:500] for each in parts]
    assert wrong == {}


def test_what_there_is_is_as_the_document_says(house: House):
    document_id = house.upload("book.pdf", sailing_book())
    house.submit(house.member, platform="web", run_at="2030-01-01T00:00:00Z")
    headers = {"Authorization": str(house.operator.headers["authorization"])}
    known = {"job_id": 1, "document_id": document_id, "number": 1, "name": "plain", "link": "x"}
    read = 0
    for operation in operations(house):
        if operation.method.upper() != "GET" or "sign-in" in operation.path:
            continue
        given = {name: known[name] for name in known if f"{{{name}}}" in operation.path}
        query = {"q": "tide", "mode": "text"} if operation.path == "/api/search" else {}
        case = operation.Case(path_parameters=given, query=query)
        answer = case.call_and_validate(headers=headers, checks=CHECKS)
        assert answer.status_code == 200, operation.label
        read += 1
    assert read > 25


def test_every_route_of_the_document_has_a_summary_and_says_how_it_fails(house: House):
    paths = house.stranger.get("/api/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation.get("summary"), (method, path)
            good = [status for status in operation["responses"] if status < "400"]
            assert good, (method, path)
            for status, answer in operation["responses"].items():
                if status >= "400" and "sign" not in path:
                    assert "application/problem+json" in answer.get("content", {}), (path, status)
