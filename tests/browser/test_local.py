"""`mainspring ui`: the page of one person's folder, with its workflows, evals and campaigns."""

import json
import urllib.error
import urllib.request
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import OpenTab, Tab, shot
from tests.browser.local_site import LocalSite, local_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

HIDEABLE = "Object.defineProperty(document, 'hidden', {get: () => Boolean(window.isHidden)})"
SEEN = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture(scope="module")
def folder_site(
    browser: "Browser", tmp_path_factory: pytest.TempPathFactory
) -> Generator[LocalSite]:
    del browser  # first: without one, nothing is started
    with local_site(tmp_path_factory.mktemp("local")) as running:
        yield running


@pytest.fixture(scope="module")
def signed_in(browser: "Browser", folder_site: LocalSite) -> Generator["BrowserContext"]:
    """The token is valid once, so the tests share the cookie that it was exchanged for."""
    context = browser.new_context(locale="en-US")
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(f"{folder_site.url}/#token={folder_site.token}")
    page.wait_for_selector("header.top")
    assert "token" not in page.url
    page.close()
    yield context
    context.close()


@pytest.fixture
def tab(signed_in: "BrowserContext", open_tab: OpenTab) -> Tab:
    return open_tab(signed_in)


def answered(site: LocalSite, path: str, **headers: str) -> int:
    method = "POST" if path.endswith("sign_in") else "GET"
    request = urllib.request.Request(f"{site.url}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_address_works_once_and_only_under_a_loopback_name(tab: Tab, folder_site: LocalSite):
    tab.page.goto(f"{folder_site.url}/")
    tab.page.wait_for_selector("table.sessions")
    assert answered(folder_site, "/v1/mainspring/sessions") == 401
    again = {"x-api-key": folder_site.token}
    assert answered(folder_site, "/v1/mainspring/sign_in", **again) == 401
    for name, value in (("Host", "attacker.example"), ("Origin", "https://attacker.example")):
        assert answered(folder_site, "/", **{name: value}) == 403
    assert folder_site.token not in tab.page.content()


def test_sessions_of_people_are_listed_and_one_shows_its_files_and_costs(
    tab: Tab, folder_site: LocalSite
):
    page = tab.page
    page.goto(f"{folder_site.url}/#/sessions")
    row = page.locator("tr[data-session]", has_text="Why does the test")
    row.wait_for()
    assert page.locator("tr[data-session]", has_text="trial 1").count() == 0
    shots(tab, "sessions")
    row.locator("a").click()
    page.wait_for_selector(".message.agent table")
    page.locator(".row.call .fold").last.click()
    shots(tab, "session")
    page.keyboard.press("3")
    page.locator(".files .fold", has_text="project/notes.md").click()
    page.wait_for_selector(".diff .added >> text=found")
    shots(tab, "files")
    notes = folder_site.folder / "project/notes.md"
    assert "found" in notes.read_text()
    page.locator(".snapshots .command").last.click()
    page.click("text=Restore these files…")
    page.click("text='Restore the files'")
    page.wait_for_selector("text=Show how they were before")
    assert "to do" in notes.read_text()
    page.click("text=Show how they were before")
    page.click("text=Restore these files…")
    page.click("text='Restore the files'")
    page.wait_for_selector("text=Show how they were before")
    assert "found" in notes.read_text()
    page.keyboard.press("6")
    page.wait_for_selector("text=the conversation")
    shots(tab, "cost")


def test_a_message_is_edited_and_run_again_in_a_fork(tab: Tab, folder_site: LocalSite):
    page = tab.page
    page.goto(f"{folder_site.url}/#/sessions")
    page.locator("tr[data-session] a", has_text="Write the release notes").click()
    page.locator(".message.user >> text=edit and run again").click()
    page.fill("textarea.edit", "Say something about refunds.")
    page.click("text=Run in a fork")
    page.wait_for_selector("text=forked from")
    page.locator(".message.user", has_text="Say something about refunds.").wait_for()
    page.wait_for_selector(".message.agent")
    page.click("text=side by side")
    page.wait_for_selector(".compare-column >> nth=1")
    assert page.locator(".compare-column .message.user").count() == 2
    shots(tab, "compare")


def test_a_session_is_replayed_and_becomes_an_eval_case(tab: Tab, folder_site: LocalSite):
    page = tab.page
    page.goto(f"{folder_site.url}/#/sessions")
    page.locator("tr[data-session] a", has_text="Why does the test").click()
    page.click("text='Replay'")
    page.click("dialog[open] >> role=button[name=Replay]")
    page.wait_for_selector("dialog[open] .verdict, .toast.bad")
    assert page.locator(".toast.bad").all_inner_texts() == []
    page.keyboard.press("Escape")
    page.click("text=Add as eval case")
    page.fill("dialog[open] input >> nth=1", "several-units")
    page.click("text=Add it")
    page.wait_for_selector("text=several-units was added to evals/sessions.yaml")
    recording = folder_site.folder / "evals/recordings/several-units.json"
    assert json.loads(recording.read_text())["calls"]


def test_the_gate_of_a_workflow_is_answered_on_its_graph(tab: Tab, folder_site: LocalSite):
    page = tab.page
    page.goto(f"{folder_site.url}/#/runs/workflows")
    page.locator("tr", has_text="waits at approve").locator("a").click()
    page.wait_for_selector(".node.waiting")
    assert page.locator(".graph .node").count() == 9
    page.wait_for_selector(".approval >> text=regular expression")
    shots(tab, "workflow")
    page.locator(".node", has_text="inspect").click()
    page.wait_for_selector(".node-detail >> text=FAILED")
    page.click(".approval >> role=button[name=approve]")
    page.click("text=Send: approve")
    page.wait_for_selector(".approval", state="detached")
    page.wait_for_selector(".node.completed:has-text('approve')")


def test_an_eval_run_shows_its_verdict_first_and_leads_to_sessions(
    tab: Tab, folder_site: LocalSite
):
    page = tab.page
    page.goto(f"{folder_site.url}/#/runs/evals")
    page.locator("table.list a").first.click()
    page.wait_for_selector(".verdict.bad >> text=The gate is closed")
    shots(tab, "eval")
    page.locator(".case a").first.click()
    page.wait_for_selector(".message.agent >> text=I am sorry")


def test_a_campaign_shows_its_scores_and_the_change_that_was_proved(
    tab: Tab, folder_site: LocalSite
):
    page = tab.page
    page.goto(f"{folder_site.url}/#/runs/campaigns")
    page.locator("table.list a").first.click()
    page.wait_for_selector(".plot canvas")
    page.wait_for_selector(".interval.good")
    shots(tab, "campaign")
    page.click("text=Use it…")
    page.click("text=Use exactly this change")
    page.wait_for_selector("text=is in use")
    assert "Warranty" in (folder_site.folder / "AGENTS.md").read_text()


def test_a_session_of_the_command_line_appears_without_a_reload(tab: Tab, folder_site: LocalSite):
    page = tab.page
    page.goto(f"{folder_site.url}/#/sessions")
    page.wait_for_selector(".dot.live")
    done = folder_site.run("run", "Say something about refunds to the next customer.")
    assert done.returncode == 0, done.stderr
    row = page.locator("tr[data-session]:has-text('the next customer')")
    row.locator(".badge.idle").wait_for()
    renamed = folder_site.run(
        "sessions", "rename", row.get_attribute("data-session") or "", "Refund"
    )
    assert renamed.returncode == 0, renamed.stderr
    page.locator("tr[data-session] a:text-is('Refund')").wait_for()


def test_tabs_that_nobody_sees_take_no_connection_from_the_one_that_is_seen(
    signed_in: "BrowserContext", open_tab: OpenTab, folder_site: LocalSite
):
    tabs = [open_tab(signed_in) for _ in range(7)]
    for tab in tabs:  # with their streams, six would take all connections of a browser to a server
        tab.page.add_init_script(HIDEABLE)
        tab.page.goto(f"{folder_site.url}/#/sessions")
        tab.page.wait_for_selector(".dot.live")
        tab.page.wait_for_selector("tr[data-session]")
        if tab is not tabs[-1]:
            tab.page.evaluate(f"window.isHidden = true; {SEEN}")
    session_id = tabs[0].page.locator("tr[data-session]").first.get_attribute("data-session")
    assert session_id is not None
    done = folder_site.run("sessions", "rename", session_id, "Seven tabs")
    assert done.returncode == 0, done.stderr
    tabs[-1].page.wait_for_selector(f"[data-session={session_id}]:has-text('Seven tabs')")
    tabs[0].page.evaluate(f"window.isHidden = false; {SEEN}")
    tabs[0].page.wait_for_selector(f"[data-session={session_id}]:has-text('Seven tabs')")


def shots(tab: Tab, name: str) -> None:
    """A picture in both themes, and at the width of a phone."""
    page = tab.page
    for theme, width in (("light", 1280), ("dark", 1280), ("phone", 390)):
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_selector(".state[role=status]", state="detached")
        shot(tab, f"{name}-{theme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, theme)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
