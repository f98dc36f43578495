"""Going in circles is noticed, once politely; getting somewhere is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentMcpToolResult,
    AgentMcpToolUse,
    AgentToolResult,
    AgentToolUse,
    KnownPayload,
    LoopContinued,
    ModelRequestStarted,
    UserMessage,
)
from mainspring.harness.state.repetition import NUDGE, Repetition, Tolerance, fold

NUDGED = LoopContinued(reason="next_turn", detail=NUDGE)
SPOKE = UserMessage(content=(TextBlock("go on"),))


class Story:
    """A thread, told turn by turn."""

    def __init__(self, tolerance: Tolerance | None = None) -> None:
        self.state = Repetition()
        self._tolerance = tolerance or Tolerance()
        self._ids = 0

    def tell(self, payload: KnownPayload) -> str:
        self._ids += 1
        self.state = fold(self.state, str(self._ids), payload, self._tolerance)
        return str(self._ids)

    def shell(self, command: str, result: str) -> Story:
        self.tell(ModelRequestStarted())
        id_ = self.tell(AgentToolUse(name="bash", input={"command": command}))
        self.tell(AgentToolResult(tool_use_id=id_, content=(TextBlock(result),)))
        return self

    def turn(self, *calls: tuple[str, str], path: str = "a") -> Story:
        self.tell(ModelRequestStarted())
        uses = [
            (self.tell(AgentToolUse(name=name, input={"path": path})), result)
            for name, result in calls
        ]
        for id_, result in reversed(uses):
            self.tell(AgentToolResult(tool_use_id=id_, content=(TextBlock(result),)))
        return self


def test_the_same_call_with_the_same_result_is_nudged_the_third_time():
    story = Story().turn(("read", "x")).turn(("read", "x"))
    assert story.state.due is None
    assert story.turn(("read", "x")).state.due == "nudge"


def test_a_nudge_that_does_not_help_is_followed_by_the_end():
    story = Story()
    for _ in range(3):
        story.turn(("read", "x"))
    story.tell(NUDGED)
    assert story.state.due is None
    for _ in range(3):
        story.turn(("read", "x"))
    assert story.state.due == "stop"


def test_the_verdict_stands_until_the_nudge_is_in_the_log():
    story = Story()
    for _ in range(5):
        story.turn(("read", "x"))
    assert story.state.due == "nudge"


def test_what_the_user_says_begins_a_new_count():
    story = Story()
    for _ in range(3):
        story.turn(("read", "x"))
    story.tell(SPOKE)
    assert story.state == Repetition()


def test_two_calls_in_turn_are_a_circle():
    story = Story().turn(("a", "x")).turn(("b", "y")).turn(("a", "x"))
    assert story.state.due is None
    assert story.turn(("b", "y")).state.due == "nudge"


def test_two_calls_in_turn_are_a_circle_also_when_made_at_once():
    assert Story().turn(("a", "x"), ("b", "y")).turn(("a", "x"), ("b", "y")).state.due == "nudge"


def test_polling_for_something_that_changes_is_no_circle():
    story = Story()
    for number in range(40):
        story.turn(("build_status", f"{number} % done"))
    assert story.state.due is None


def test_polling_with_a_wait_between_is_no_circle_until_it_is_endless():
    story = Story()
    for _ in range(100):
        story.turn(("wait_for_build", "waited")).turn(("build_status", "pending"))
    assert story.state.due is None
    for _ in range(40):
        story.shell("sleep 30; gh run view 7", "pending").shell("cat a; wait %1", "")
    assert story.state.due is None
    for _ in range(40):
        story.turn(("WaitForBuild", "waited")).turn(("build_status", "pending"))
    assert story.state.due == "nudge"
    for command in ("cat sleep.txt", "echo await", "ls sleepy"):
        story = Story()
        for _ in range(3):
            story.shell(command, "same")
        assert story.state.due == "nudge", command


def test_the_same_answer_to_different_calls_is_progress():
    story = Story()
    for number in range(30):
        story.turn(("write", "done"), path=f"file{number}")
    assert story.state.due is None


def test_a_longer_round_of_known_steps_is_no_news():
    story = Story(Tolerance(stale_turns=4))
    for name in "abcabca":
        story.turn((name, "same"))
    assert story.state.due is None
    story.tell(ModelRequestStarted())
    assert story.state.due == "nudge"


def test_one_new_result_makes_a_turn_worth_it():
    story = Story(Tolerance(stale_turns=2))
    for number in range(9):
        story.turn(("old", "same"), ("log", f"line {number}"), (f"other{number % 3}", "same"))
    assert story.state.stale_turns == 0


def test_calls_of_different_servers_are_different():
    story = Story()
    for server in ("one", "two", "three"):
        id_ = story.tell(AgentMcpToolUse(mcp_server_name=server, name="read", input={}))
        story.tell(AgentMcpToolResult(mcp_tool_use_id=id_, content=(TextBlock("x"),)))
    assert story.state.due is None


def test_the_order_of_arguments_does_not_matter():
    story = Story()
    for order in (["a", "b"], ["b", "a"], ["a", "b"]):
        id_ = story.tell(AgentToolUse(name="read", input={key: 1 for key in order}))
        story.tell(AgentToolResult(tool_use_id=id_))
    assert story.state.due == "nudge"


steps = st.one_of(
    st.tuples(st.just("use"), st.sampled_from("ab")),
    st.tuples(st.just("result"), st.sampled_from("xy")),
    st.tuples(st.sampled_from(["turn", "nudge", "user"]), st.just("")),
)


@given(st.lists(steps, max_size=60))
def test_any_prefix_folds_and_the_end_comes_only_after_a_nudge(story: list[tuple[str, str]]):
    state, nudged = Repetition(), False
    for number, (kind, value) in enumerate(story):
        payload: KnownPayload = {
            "use": AgentToolUse(name=value, input={}),
            "result": AgentToolResult(tool_use_id=str(number - 1), content=(TextBlock(value),)),
            "turn": ModelRequestStarted(),
            "nudge": NUDGED,
            "user": SPOKE,
        }[kind]
        state = fold(state, str(number), payload)
        nudged = kind == "nudge" or (nudged and kind != "user")
        assert state.due != "stop" or nudged
        assert state.due != "nudge" or not nudged


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=400))
def test_the_state_does_not_grow_with_the_session(calls: list[tuple[str, str]]):
    story = Story()
    for call in calls:
        story.turn(call)
    assert len(story.state.recent) <= 16
    assert len(story.state.known) <= 200
