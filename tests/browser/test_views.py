"""Each view of the dashboard shows what there is, live, to those who may see it."""

import json

import pytest
from tests.browser.conftest import OpenTab, Site, shot
from tests.browser.dialogs import ATTRIBUTES, FORBIDDEN, PAYLOADS

TASK = 'Write it.\ncall write {"file_path": "made.txt", "content": "hello"}\nsay It is written.'


def test_a_session_is_seen_from_the_list_to_its_log(site: Site, open_tab: OpenTab):
    session_id = site.begin("Greet me.\nsay **Hello** from `the model`.")
    tab = open_tab()
    site.sign_in(tab)
    page = tab.page
    row = page.locator(f"[data-session={session_id}]")
    row.locator(".badge.idle").wait_for()
    page.wait_for_selector(".dot.live")
    shot(tab, "sessions-light")
    row.locator("a").click()
    page.wait_for_selector(".message.agent strong:has-text('Hello')")
    shot(tab, "session-light")
    for name, shown in (("Timeline", ".span.model"), ("Log", "table.log tr"), ("Context", ".part")):
        page.click(f"role=tab[name={name}]")
        page.wait_for_selector(shown)
        shot(tab, name.lower())
    page.click("role=tab[name=Log]")
    page.locator("table.log button").first.click()
    page.wait_for_selector("dialog[open] code")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


def test_changes_appear_without_a_reload(site: Site, open_tab: OpenTab):
    tab = open_tab()
    site.sign_in(tab)
    tab.page.wait_for_selector(".dot.live")
    session_id = site.begin("Greet me.\nsay First answer.")
    tab.page.click(f"[data-session={session_id}] a")
    tab.page.wait_for_selector("text=First answer.")
    site.say(session_id, "Again.\nsay Second answer.")
    tab.page.wait_for_selector(".message.agent >> text=Second answer.")


def test_a_message_is_sent_and_answered(site: Site, open_tab: OpenTab):
    session_id = site.begin("Greet me.\nsay First answer.")
    tab = open_tab()
    site.sign_in(tab, path=f"#/sessions/{session_id}")
    tab.page.fill(".compose textarea", "Once more.\nsay From the page.")
    tab.page.click(".compose >> text=Send")
    tab.page.wait_for_selector(".message.agent >> text=From the page.")


def test_a_question_is_answered_after_it_could_be_taken_back(site: Site, open_tab: OpenTab):
    session_id = site.begin(TASK)
    tab = open_tab()
    site.sign_in(tab, path="#/inbox")
    page = tab.page
    card = page.locator(".approval").first
    card.locator(".added >> text=+hello").first.wait_for()
    page.wait_for_function("document.title.startsWith('(1)')")
    shot(tab, "inbox-light")
    card.locator("text='Allow'").click()
    card.locator("text=Take back").click()
    card.locator("text='Allow'").wait_for()
    card.locator("text='Allow'").click()
    page.wait_for_selector("text=Nothing waits for you")
    page.goto(f"{site.url}/#/sessions/{session_id}")
    page.wait_for_selector(".message.agent >> text=It is written.")


def test_the_keyboard_is_enough(site: Site, open_tab: OpenTab):
    site.begin(TASK)
    tab = open_tab()
    site.sign_in(tab)
    page = tab.page
    page.wait_for_selector("[data-session] .badge.waiting")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_selector(".approval.selected")
    page.keyboard.press("d")
    page.wait_for_selector("text=Take back")
    page.keyboard.press("u")
    page.wait_for_selector(".approval >> text='Deny'")
    page.keyboard.press("a")
    page.wait_for_selector("text=Nothing waits for you")
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog[open] .palette")
    page.keyboard.type("go to sessions")
    page.keyboard.press("Enter")
    page.wait_for_selector("table.sessions tr.current")
    page.keyboard.press("Enter")
    page.wait_for_selector(".conversation")
    page.keyboard.press("2")
    page.wait_for_selector(".timeline")
    page.keyboard.press("Escape")
    page.wait_for_selector("table.sessions")


def test_a_viewer_sees_and_changes_nothing(site: Site, open_tab: OpenTab):
    session_id = site.begin(TASK)
    tab = open_tab()
    site.sign_in(tab, site.new_key("viewer"), path="#/inbox")
    page = tab.page
    page.wait_for_selector(f".approval:has(a[href$='{session_id}']) >> text=needs the role")
    assert page.locator("text='Allow'").count() == 0
    page.goto(f"{site.url}/#/sessions/{session_id}")
    page.wait_for_selector(".row.call")
    assert page.locator(".compose").count() == 0
    [cookie] = page.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    assert page.evaluate("document.cookie + JSON.stringify({...localStorage})").count("msk_") == 0


def test_two_tabs_show_the_same_and_a_signed_out_one_nothing(site: Site, open_tab: OpenTab):
    first = open_tab()
    site.sign_in(first)
    second = open_tab(first.page.context)
    second.page.goto(site.url)
    session_id = site.begin("Greet me.\nsay Hello.")
    for tab in (first, second):
        tab.page.wait_for_selector(f"[data-session={session_id}] .badge.idle")
    first.page.keyboard.press("Control+k")
    first.page.wait_for_selector("dialog[open] .palette")
    first.page.keyboard.type("sign out")
    first.page.keyboard.press("Enter")
    first.page.wait_for_selector(".sign-in")
    second.page.reload()
    second.page.wait_for_selector(".sign-in")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", None], ids=["locale", "no-locale"])
def test_it_fits_a_phone_in_both_themes(
    site: Site, open_tab: OpenTab, theme: str, locale: str | None
):
    session_id = site.begin("Greet me.\nsay Hello.")
    tab = open_tab(locale=locale, color_scheme=theme, viewport={"width": 390, "height": 780})
    page = tab.page
    if locale is None:
        page.add_init_script(
            "Object.defineProperty(navigator, 'language', {get: () => 'en-US@posix'})"
        )
    site.sign_in(tab)
    page.click(f"[data-session={session_id}] a")
    page.wait_for_selector(".message.agent >> text=Hello.")
    shot(tab, f"phone-{theme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_no_text_becomes_code(site: Site, open_tab: OpenTab):
    assert len(PAYLOADS) >= 80
    everything = "\n\n".join(PAYLOADS)
    said = json.dumps({"file_path": "<img src=x onerror=alert(1)>.txt", "content": everything})
    text = f"{everything}\ncall write {said}"
    lines = "\n".join(f"say {payload}" for payload in PAYLOADS[:6])
    sessions = [
        site.begin(text, title="<script>alert(1)</script> \u202egnp"),
        site.begin(f"{everything}\n{lines}\n", title='"><img src=x onerror=alert(1)>'),
    ]
    tab = open_tab()
    site.sign_in(tab)
    page = tab.page
    places = ["#/sessions", "#/inbox", "#/sessions?q=script"]
    for session_id in sessions:
        places += [
            f"#/sessions/{session_id}{view}"
            for view in ("", "?tab=timeline", "?tab=log", "?tab=context")
        ]
    page.wait_for_selector(f"[data-session={sessions[0]}] .badge.waiting")
    page.wait_for_selector(f"[data-session={sessions[1]}] .badge.idle")
    for place in places:
        page.goto(f"{site.url}/{place}")
        page.wait_for_selector(".approval, .row, .span, table, .part, .results")
        for fold in page.locator(".fold, summary").all():
            fold.click()
        assert page.locator(FORBIDDEN).count() == 0, place
        assert page.evaluate(ATTRIBUTES) == [], place
        tab.check()


def test_a_long_line_and_a_large_text_are_shown_cut(site: Site, open_tab: OpenTab):
    session_id = site.begin("x" * 1_000_000)
    tab = open_tab()
    site.sign_in(tab, path=f"#/sessions/{session_id}")
    tab.page.wait_for_selector(".message.user >> text=Download all")
    assert tab.page.evaluate("document.body.innerText.length") < 20_000


def test_the_page_cannot_be_framed_and_says_nothing_secret(site: Site, open_tab: OpenTab):
    tab = open_tab()
    answer = tab.page.goto(site.url)
    assert answer is not None
    headers = answer.all_headers()
    assert headers["x-frame-options"] == "DENY"
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for"):
        assert part in policy
    assert "unsafe" not in policy
    assert site.key not in answer.text()
