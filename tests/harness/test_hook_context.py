"""What hooks want a model to know is told with the next thing that it has to answer, not before."""

from pathlib import Path

from tests.harness.session_setup import Stage, stage

from mainspring.capabilities.providers.scripted import Scripted, says
from mainspring.core.events import ContextAdded
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Ended


async def start_hook(play: Stage) -> None:
    context = await play.context()
    context.note(ContextAdded(text="The branch is main.", source="SessionStart hook"))
    await context.event_sink.commit()
    await context.writer.release()


class WithholdingAuthorizer(AllowAll):
    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        if "secret" in str(hook_event.fields.get("prompt")):
            return HookResult(blocked=True, reason="a secret", context=("No secrets here.",))
        return EMPTY_HOOK_RESULT


async def test_context_from_a_session_start_hook_alone_calls_no_model(tmp_path: Path):
    model = Scripted(says("hello"))
    async with stage(tmp_path, model) as play:
        await start_hook(play)
        assert await play.play() is None
        assert model.requests == []
        assert await play.play("hi") == Ended("completed")
        assert "The branch is main." in str(model.requests[0].messages)


async def test_after_a_withheld_message_no_model_is_called(tmp_path: Path):
    model = Scripted(says("hello"))
    async with stage(tmp_path, model, authorizer=WithholdingAuthorizer()) as play:
        await start_hook(play)
        assert await play.play("my secret") == Ended("hook_stopped", "a secret")
        assert await play.play() is None
        assert model.requests == []
        assert await play.play("hi") == Ended("completed")
        [request] = model.requests
        assert "my secret" not in str(request)
        assert "No secrets here." in str(request)


async def test_a_message_blocked_by_a_hook_never_reaches_the_model(tmp_path: Path):
    class Guard(AllowAll):
        async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
            if hook_event.fields.get("prompt") == "my password is hunter2":
                return HookResult(blocked=True, reason="it holds a secret")
            return EMPTY_HOOK_RESULT

    model = Scripted(says("hello"))
    async with stage(tmp_path, model, authorizer=Guard()) as play:
        assert await play.play("my password is hunter2") == Ended(
            "hook_stopped", "it holds a secret"
        )
        assert model.requests == []
        assert await play.play("hi") == Ended("completed")
        assert "hunter2" not in repr(model.requests)
