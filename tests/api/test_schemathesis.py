"""The OpenAPI document taken at its word: requests made of it, good and bad, to all of the API."""
# pyright: basic
# schemathesis tells its types in part only

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from anyio import to_thread
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.api.whole_api import TENANTS, Whole, whole

from mainspring.edges.api.openapi import STREAM_MEDIA_TYPE, document

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ENDING = ("/archive", "/disable", "/redact", "/revoke", "/stop")
"""After these a thing is not what it was: they come last."""
MAX_URL = 8_000
"""What is longer never gets to us: the parser of HTTP refuses it in its own words."""
_MADE_UP_EVERY = 4
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")


@dataclass(slots=True)
class Fuzz:
    api: Whole
    examples: int
    is_steady: bool
    negative_every: int = 1
    """Of how many operations one gets requests that are not as documented."""
    asked: int = 0
    done: set[str] = field(default_factory=set[str])
    """Operations that were carried out at least once."""
    problems: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def run(self) -> None:
        operations = self._operations()
        fallible = [item for item in operations if item.query or item.body][:: self.negative_every]
        for operation in operations:
            self._try(operation, GenerationMode.POSITIVE)
            if operation in fallible:
                self._try(operation, GenerationMode.NEGATIVE)

    def _operations(self) -> list[Any]:
        document_ = document(self.api.routes, version="1")
        schema = schemathesis.openapi.from_dict(document_)
        streams = {r.operation for r in self.api.routes if r.media_type == STREAM_MEDIA_TYPE}
        found: list[Any] = [cast("Any", g).ok() for g in schema.get_all_operations()]
        ending = sorted(found, key=lambda e: e.method == "delete" or e.path.endswith(ENDING))
        return [item for item in ending if f"{item.method} {item.path}" not in streams]

    def _try(self, operation: Any, mode: GenerationMode) -> None:  # noqa: ANN401
        @settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            derandomize=self.is_steady,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def attempt(case: Case) -> None:
            self._ask(case, is_good=mode == GenerationMode.POSITIVE)

        with suppress(Unsatisfiable):  # nothing can be wrong with what takes anything
            attempt()

    def _ask(self, case: Case, *, is_good: bool) -> None:
        self.asked += 1
        name = f"{case.method.lower()} {case.path}"
        self._settle(case, is_good=is_good)
        response = case.call(base_url=self.api.url, headers={"x-api-key": self._key(case)})
        if len(response.request.url or "") > MAX_URL:
            return
        if response.status_code < 300:
            self.done.add(name)
        try:
            case.validate_response(response, checks=CHECKS)
        except Exception as problem:  # noqa: BLE001 (all of them are told at the end)
            self.problems.setdefault((name, type(problem).__name__), str(problem))

    def _settle(self, case: Case, *, is_good: bool) -> None:
        """Mostly about things that there are; else all of it would be about nothing."""
        case.headers.pop("Authorization", None)  # ours is the other one
        ids = {**self.api.ids[TENANTS[0]], "tenant_id": TENANTS[1]}
        if self.asked % _MADE_UP_EVERY:
            for parameter in case.path_parameters:
                case.path_parameters[parameter] = ids[parameter]
        if is_good and isinstance(case.body, dict):
            case.body = about(cast("dict[str, Any]", case.body), ids)

    def _key(self, case: Case) -> str:
        is_platforms = case.path.startswith("/v1/mainspring/tenants")
        return self.api.root if is_platforms else self.api.keys[TENANTS[0], "admin"]


def about(body: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """The same, with ids of things that there are."""
    current = {**ids, "agent": ids["agent_id"], "vault_ids": [ids["vault_id"]]}
    return {key: current.get(key, value) for key, value in body.items()}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Whole]:
    async with whole(tmp_path) as made:
        yield made


def list_failures(fuzz: Fuzz) -> Iterator[str]:
    for (name, kind), problem in fuzz.problems.items():
        yield f"{name} ({kind}): {problem[:1500]}"


async def test_generated_requests_get_documented_responses(api: Whole):
    fuzz = Fuzz(api, examples=1, is_steady=True, negative_every=5)
    await to_thread.run_sync(fuzz.run)
    assert list(list_failures(fuzz)) == []
    assert len(fuzz.done) > len(api.routes) // 2


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_many_generated_requests_get_documented_responses(api: Whole):
    fuzz = Fuzz(api, examples=12, is_steady=False)
    await to_thread.run_sync(fuzz.run)
    assert list(list_failures(fuzz)) == []
    assert len(fuzz.done) > len(api.routes) * 2 // 3
