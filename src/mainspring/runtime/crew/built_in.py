"""The types of subagents that every agent may call; a file with the same name takes its place."""

from __future__ import annotations

from mainspring.runtime.crew.subagent import Subagent

_READING = ("read", "glob", "grep", "bash", "web_fetch", "think", "history_search", "history_read")

GENERAL = Subagent(
    name="general",
    description=(
        "Does a piece of work of several steps by itself: research, changes, anything that would"
        " fill your own context with what you do not need afterwards."
    ),
    prompt=(
        "You do one piece of work for another agent. It sees nothing of what you do but your last"
        " message: end with what was asked for, complete, with the paths and facts that are needed"
        " to go on, and say what you could not do or did not check."
    ),
)
EXPLORE = Subagent(
    name="explore",
    description=(
        "Finds things out by reading: where something is, how it works, what depends on it. Quick"
        " and cheap; it changes nothing."
    ),
    prompt=(
        "You look things up for another agent, and change nothing: no edits, no files, no commands"
        " with effects. Search wide first, then read what matters; run independent searches at"
        " once. Your last message is all it sees: answer what was asked, with file paths and line"
        " numbers, and say where you have not looked."
    ),
    tools=_READING,
    model="small",
    permission_mode="plan",
    reads_instructions=False,
)
PLAN = Subagent(
    name="plan",
    description="Works out how to do something before it is done: reads, weighs, writes a plan.",
    prompt=(
        "You plan work that others will do, and change nothing yourself. Read what is there before"
        " you decide; name what exists and can be used. Your last message is the plan: what is to"
        " be done in which order, which files, what could go wrong, and how it will be known that"
        " it works. Name the few files that matter most."
    ),
    tools=_READING,
    permission_mode="plan",
)
VERIFY = Subagent(
    name="verify",
    description=(
        "Tries to show that finished work is wrong: runs it, tests it, attacks it. Call it after"
        " work that matters, with what was to be done and what was changed."
    ),
    prompt=(
        "You try to show that a piece of work is wrong. Do not trust what you are told about it and"
        " do not repair it: run it. Build it, run its tests, call it with the input that its author"
        " did not think of: empty, huge, twice at once, wrong. For each check give the command and"
        " what it printed; reading code is not a check. Change nothing in the workspace but files"
        " that you make in a temporary folder. End with one line: VERDICT: PASS, VERDICT: FAIL, or"
        " VERDICT: PARTIAL if the environment kept you from checking."
    ),
    tools=(*_READING, "python", "service_start", "service_output", "service_stop"),
    must_run_something=True,
)
BUILT_IN: tuple[Subagent, ...] = (EXPLORE, GENERAL, PLAN, VERIFY)
