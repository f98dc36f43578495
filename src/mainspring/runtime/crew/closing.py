"""The tool by which an agent takes over what a subagent did in a worktree, or throws it away.

To merge is to edit: rules and modes see the files of the workspace that would change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.core.errors import HandsError
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Outcome, Tool, Traits
from mainspring.harness.ensemble import Member
from mainspring.runtime.crew.addressing import addressed, addressee
from mainspring.runtime.crew.calling import refused
from mainspring.runtime.crew.crew import Crew
from mainspring.runtime.crew.worktrees import Lodgings, named
from mainspring.runtime.kit import Closed

_CLOSING = Traits(in_doubt="retry", on_interrupt="block")
_UNKNOWN = (".",)
"""What is judged when nobody has looked: the whole workspace."""
_MOST_SHOWN = 200


def close_worktree(crew: Crew, member: Member) -> Tool:
    closing = _Closing(crew, member)
    return Tool(
        spec=_SPEC,
        run=closing.run,
        traits=lambda _: _CLOSING,
        invalid=_wrong,
        objection=closing.objection,
        judged=closing.judged,
        preview=closing.preview,
    )


@dataclass(frozen=True, slots=True)
class _Closing:
    crew: Crew
    member: Member
    """Who closes."""

    @property
    def lodgings(self) -> Lodgings:
        return self.crew.lodgings

    async def run(self, call: Call) -> Outcome:
        to = addressee(self.crew, self.member, call.input)
        if isinstance(to, Outcome):
            return to
        if self.crew.is_live(to.id) or self.crew.has_others_below(to):
            return refused(f"{to.name} {to.id} is still at work: wait for it, or stop_agent.")
        is_merge, judged = _is_merge(call.input), self.lodgings.changed.get(to.id, ())
        try:
            if is_merge and judged != await self.lodgings.look(to):
                return refused("What is in it has changed meanwhile: call close_worktree again.")
            return _told(to, await self.lodgings.close(to, merge=is_merge))
        except HandsError as error:
            return refused(str(error))

    async def objection(self, call: Call) -> str | None:
        """None; but what is judged next has to be looked up."""
        try:
            await self._look(call.input)
        except HandsError as error:
            return str(error)
        return None

    def judged(self, given: Mapping[str, object]) -> Mapping[str, object]:
        to = addressee(self.crew, self.member, given)
        if isinstance(to, Outcome) or not _is_merge(given):
            return given
        return {**given, "paths": [*self.lodgings.changed.get(to.id, _UNKNOWN)]}

    async def preview(self, call: Call) -> str | None:
        try:
            changed = await self._look(call.input)
        except HandsError as error:
            return str(error)
        return f"Merge into the workspace: {named(changed, _MOST_SHOWN)}" if changed else None

    async def _look(self, given: Mapping[str, object]) -> tuple[str, ...]:
        to = addressee(self.crew, self.member, given)
        if isinstance(to, Outcome) or not _is_merge(given):
            return ()
        return await self.lodgings.look(to)


def _is_merge(given: Mapping[str, object]) -> bool:
    return given.get("action") != "discard"


def _wrong(given: Mapping[str, object]) -> str | None:
    if given.get("action") not in ("merge", "discard"):
        return "The input is not valid:\n- action: merge or discard"
    return None


def _told(to: Member, closed: Closed | None) -> Outcome:
    if closed is None:
        return refused(f"{to.name} {to.id} has no worktree that is open.")
    match closed.outcome:
        case "merged":
            return Outcome.text(f"Merged into the workspace, as {closed.commit}.")
        case "discarded":
            return Outcome.text(f"Discarded{f': {closed.reason}' if closed.reason else ''}.")
        case "kept":
            return refused(
                f"Not merged, and nothing was changed: {closed.reason} When what is in the way is"
                " out of the way, close it again: commit what is uncommitted; what conflicts, merge"
                " yourself with git. Or discard it."
            )


_SPEC = ToolSpec(
    name="close_worktree",
    description=(
        "Close the git worktree of a subagent that you have called and that has ended: merge what"
        " it changed into the workspace's branch, or discard all of it. If it cannot be merged, you"
        " are told why, and nothing is lost."
    ),
    input_schema=addressed({"action": {"type": "string", "enum": ["merge", "discard"]}}),
)
