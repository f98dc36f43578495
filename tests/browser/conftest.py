"""A real Chromium, a real server and real sessions. Without a browser, or without a build of the
dashboard, these tests are skipped, and the reason says what is missing.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from anthropic import Anthropic
from tests.api.conftest import Platform, obey, platform
from tests.browser.dialogs import WATCH

from mainspring.edges.dashboard.pages import STATIC

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

MS = 60_000
"""Every wait ends after this: a safety net on a busy machine, not a measurement."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SHOTS = Path(__file__).parents[2] / "build/browser"
ASKING = {
    "type": "agent_toolset_20260401",
    "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
}


def chromium() -> str | None:
    named = os.environ.get("MAINSPRING_TEST_BROWSER", "")  # noqa: TID251 (of the tests)
    found = (shutil.which(name) for name in (named, *BROWSERS) if name)
    return next((path for path in found if path), None)


@pytest.fixture(scope="session")
def browser() -> "Generator[Browser]":
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: `make setup` installs it")
    if (path := chromium()) is None:
        pytest.skip("there is no Chromium on this machine: `make test-browser` installs one")
    if not (STATIC / "index.html").is_file():
        pytest.skip("the dashboard is not built: `make dashboard` builds it")
    from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415 (needs the above)

    with sync_playwright() as playwright:
        try:
            made = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=MS
            )
        except Error as error:
            pytest.skip(f"{path} does not start here: {error.message.splitlines()[0]}")
        yield made
        made.close()


@dataclass
class Tab:
    """A page, and what it must not do."""

    page: "Page"
    problems: list[str] = field(default_factory=list[str])

    def check(self) -> None:
        """Nothing was executed that should not be, and the policy was not violated."""
        assert self.problems == []
        assert self.page.evaluate("window.violations") == []


OpenTab: TypeAlias = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: "Browser") -> Generator[OpenTab]:
    """Opens a tab in a context of its own, or in the given one."""
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    def open_(context: "BrowserContext | None" = None, **options: Any) -> Tab:  # noqa: ANN401 (any of them)
        if context is None:
            merged: dict[str, Any] = {"locale": "en-US", **options}  # of many types
            context = browser.new_context(**merged)
            contexts.append(context)
        context.set_default_timeout(MS)
        page = context.new_page()
        tab = Tab(page)
        page.add_init_script(WATCH)
        page.on("dialog", lambda dialog: tab.problems.append(dialog.message) or dialog.dismiss())
        page.on("pageerror", lambda error: tab.problems.append(str(error)))
        tabs.append(tab)
        return tab

    yield open_
    for tab in tabs:
        if not tab.page.is_closed():
            tab.check()
            tab.page.close()  # the streams of open tabs take a context's few connections
    for context in contexts:
        context.close()


@dataclass(frozen=True)
class Site:
    """A running server with an agent."""

    url: str
    key: str
    client: Anthropic
    agent_id: str
    environment_id: str

    def begin(self, text: str, **fields: Any) -> str:  # noqa: ANN401 (of the request)
        """A session that has received a message."""
        made = self.client.beta.sessions.create(
            agent=self.agent_id, environment_id=self.environment_id, **fields
        )
        self.say(made.id, text)
        return made.id

    def say(self, session_id: str, text: str) -> None:
        message: Any = {"type": "user.message", "content": [{"type": "text", "text": text}]}
        self.client.beta.sessions.events.send(session_id, events=[message])

    def new_key(self, role: str) -> str:
        body = {"name": role, "role": role}
        made: Any = self.client.post("/v1/mainspring/keys", cast_to=object, body=body)
        return made["key"]

    def sign_in(self, tab: Tab, key: str | None = None, path: str = "") -> None:
        page = tab.page
        page.goto(f"{self.url}/{path}")
        page.fill("input[name=credential]", key or self.key)
        page.click("text=Sign in")
        page.wait_for_selector("header.top")


def site_of(running: Platform) -> Site:
    client = Anthropic(api_key=running.key, base_url=running.url, max_retries=0, timeout=60)
    tools: Any = [ASKING]
    agent = client.beta.agents.create(name="helper", model="ollama:test", tools=tools)
    environment = client.beta.environments.create(name="hall")
    return Site(running.url, running.key, client, agent.id, environment.id)


@pytest.fixture(scope="module")
def site(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    del browser  # first: without one, no server is started
    with platform(tmp_path_factory.mktemp("site"), answer=obey) as running:
        made = site_of(running)
        with made.client:
            yield made


def shot(tab: Tab, name: str) -> None:
    """Keep a picture of what a test saw."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=SHOTS / f"{name}.png")
