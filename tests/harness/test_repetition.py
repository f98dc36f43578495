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


class EventSequence:
    """A thread, told turn by turn."""

    def __init__(self, tolerance: Tolerance | None = None) -> None:
        self.state = Repetition()
        self._tolerance = tolerance or Tolerance()
        self._ids = 0

    def tell(self, payload: KnownPayload) -> str:
        self._ids += 1
        self.state = fold(self.state, str(self._ids), payload, self._tolerance)
        return str(self._ids)

    def shell(self, command: str, result: str) -> EventSequence:
        self.tell(ModelRequestStarted())
        id_ = self.tell(AgentToolUse(name="bash", input={"command": command}))
        self.tell(AgentToolResult(tool_use_id=id_, content=(TextBlock(result),)))
        return self

    def turn(self, *calls: tuple[str, str], path: str = "a") -> EventSequence:
        self.tell(ModelRequestStarted())
        uses = [
            (self.tell(AgentToolUse(name=name, input={"path": path})), result)
            for name, result in calls
        ]
        for id_, result in reversed(uses):
            self.tell(AgentToolResult(tool_use_id=id_, content=(TextBlock(result),)))
        return self


def test_the_third_identical_call_with_the_same_result_gets_a_nudge():
    story = EventSequence().turn(("read", "x")).turn(("read", "x"))
    assert story.state.due is None
    assert story.turn(("read", "x")).state.due == "nudge"


def test_repetition_after_a_nudge_stops_the_run():
    story = EventSequence()
    for _ in range(3):
        story.turn(("read", "x"))
    story.tell(NUDGED)
    assert story.state.due is None
    for _ in range(3):
        story.turn(("read", "x"))
    assert story.state.due == "stop"


def test_a_nudge_stays_due_until_it_is_in_the_log():
    story = EventSequence()
    for _ in range(5):
        story.turn(("read", "x"))
    assert story.state.due == "nudge"


def test_a_user_message_resets_the_count():
    story = EventSequence()
    for _ in range(3):
        story.turn(("read", "x"))
    story.tell(SPOKE)
    assert story.state == Repetition()


def test_two_alternating_calls_are_a_loop():
    story = EventSequence().turn(("a", "x")).turn(("b", "y")).turn(("a", "x"))
    assert story.state.due is None
    assert story.turn(("b", "y")).state.due == "nudge"


def test_two_calls_repeated_in_parallel_are_a_loop():
    assert (
        EventSequence().turn(("a", "x"), ("b", "y")).turn(("a", "x"), ("b", "y")).state.due
        == "nudge"
    )


def test_polling_with_changing_results_is_not_a_loop():
    story = EventSequence()
    for number in range(40):
        story.turn(("build_status", f"{number} % done"))
    assert story.state.due is None


def test_polling_with_waits_is_not_a_loop_until_it_is_endless():
    story = EventSequence()
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
        story = EventSequence()
        for _ in range(3):
            story.shell(command, "same")
        assert story.state.due == "nudge", command


def test_the_same_result_of_different_calls_is_progress():
    story = EventSequence()
    for number in range(30):
        story.turn(("write", "done"), path=f"file{number}")
    assert story.state.due is None


def test_a_longer_cycle_of_known_steps_is_stale():
    story = EventSequence(Tolerance(stale_turns=4))
    for name in "abcabca":
        story.turn((name, "same"))
    assert story.state.due is None
    story.tell(ModelRequestStarted())
    assert story.state.due == "nudge"


def test_one_new_result_makes_a_turn_progress():
    story = EventSequence(Tolerance(stale_turns=2))
    for number in range(9):
        story.turn(("old", "same"), ("log", f"line {number}"), (f"other{number % 3}", "same"))
    assert story.state.stale_turns == 0


def test_calls_of_different_servers_are_different():
    story = EventSequence()
    for server in ("one", "two", "three"):
        id_ = story.tell(AgentMcpToolUse(mcp_server_name=server, name="read", input={}))
        story.tell(AgentMcpToolResult(mcp_tool_use_id=id_, content=(TextBlock("x"),)))
    assert story.state.due is None


def test_the_order_of_arguments_does_not_matter():
    story = EventSequence()
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
def test_any_prefix_folds_and_a_stop_comes_only_after_a_nudge(story: list[tuple[str, str]]):
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
    story = EventSequence()
    for call in calls:
        story.turn(call)
    assert len(story.state.recent) <= 16
    assert len(story.state.known) <= 200
