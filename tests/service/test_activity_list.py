"""What sessions of a tenant do now, or why they wait, over HTTP."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from tests.api.approvals_api import NamedTags, erasing, session_context
from tests.api.sessions_api import session

from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.run.session_insights import ActivityRoutes
from mainspring.log.sqlite import store as sqlite_store
from mainspring.service.sessions.activity_list import ActivityList

PATH = "/v1/mainspring/activity"


@contextmanager
def counted_statements() -> Generator[list[str]]:
    """The statements of all reading connections of SQLite that are opened from here on."""
    statements: list[str] = []
    connect = sqlite_store.connect

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(statements.append)
        return connection

    sqlite_store.connect = traced
    try:
        yield statements
    finally:
        sqlite_store.connect = connect


async def test_activity_is_listed_by_page_with_three_statements_and_without_reading_logs(
    tmp_path: Path,
):
    with counted_statements() as statements:
        async with (
            session_context(tmp_path, erasing("a")) as office,
            office.home.client() as client,
        ):
            waiting = await office.asked(client)
            idle = [(await session(client)).id for _ in range(4)]
            activity = ActivityList(office.home.sessions)
            api = Api(routes_of(ActivityRoutes(activity)), access_control=NamedTags())
            async with (
                http_server(api.application()) as url,
                aiohttp.ClientSession(url, headers={"x-api-key": "acme:viewer"}) as http,
            ):
                statements.clear()
                async with http.get(PATH, params={"limit": "3"}) as response:
                    first = await response.json()
                assert len(statements) <= 3, statements
                async with http.get(PATH, params={"page": first["next_page"]}) as response:
                    rest = await response.json()
                async with http.get(PATH, headers={"x-api-key": "other:viewer"}) as response:
                    assert (await response.json())["data"] == []
    lines = [*first["data"], *rest["data"]]
    assert [line["session_id"] for line in lines] == [*reversed(idle), waiting]
    assert [line["text"] for line in lines[:4]] == ["waits for its first message"] * 4
    assert lines[4]["text"] == "waits for a person: erase: a"
    assert (lines[4]["status"], lines[4]["waits_for"]) == ("idle", "person")
    assert rest["next_page"] is None
