import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.operator_api import Operated, operated


async def read(api: Operated) -> dict[tuple[str, ...], float]:
    answer = await api.get("/metrics", "default:operator")
    assert answer.status == 200
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_requests_are_counted_by_route_and_never_by_path(tmp_path: Path):
    async with operated(tmp_path) as api:
        await api.get("/v1/environments?page=secret", "acme:viewer")
        await api.get("/v1/environments/env_1", "acme:viewer")
        await api.get("/v1/environments/env_2", "acme:viewer")
        await api.get("/no/such/place", "acme:viewer")
        await api.get("/v1/environments")
        found = await read(api)
    counted = "mainspring_requests_total"
    assert found[counted, "GET", "/v1/environments", "400"] == 1
    assert found[counted, "GET", "/v1/environments", "401"] == 1
    assert found[counted, "GET", "/v1/environments/{environment_id}", "404"] == 2
    assert found[counted, "(none)", "(none)", "404"] == 1
    assert found["mainspring_request_seconds_count", "GET", "/v1/environments"] == 2
    assert found["mainspring_sessions_parked",] == 0


@pytest.mark.parametrize(
    ("key", "status"),
    [
        (None, 401),
        ("default:viewer", 403),
        ("default:user", 403),
        ("acme:admin", 403),  # they tell of all tenants
        ("default:operator", 200),
    ],
)
async def test_metrics_need_an_operator_of_the_root_tenant(
    tmp_path: Path, key: str | None, status: int
):
    async with operated(tmp_path) as api:
        assert (await api.get("/metrics", key)).status == status


async def test_the_internal_address_serves_metrics_without_a_key_and_nothing_else(tmp_path: Path):
    async with operated(tmp_path) as api:
        answer = await api.get_inside("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert "mainspring_requests_total" in answer.text
        assert (await api.get_inside("/v1/environments")).status == 404


async def test_every_request_is_logged_without_its_query_and_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "mainspring.access")
    async with operated(tmp_path) as api:
        await api.get("/v1/environments/env_1?token=secret", "acme:viewer")
        await api.get("/healthz")
    [record] = caplog.records
    assert record.getMessage().startswith("get /v1/environments/{environment_id} 404 ")
    subject = vars(record)["subject"]
    assert (subject["tenant"], subject["environment_id"]) == ("acme", "env_1")
    assert subject["request_id"].startswith("req_")
    assert "secret" not in repr(vars(record))
    assert "acme:viewer" not in repr(vars(record))
