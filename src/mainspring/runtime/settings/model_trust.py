"""Which models a folder may choose before somebody trusts it: those of the provider that its user
chose. Another one would get the conversation, and spend on another key of the user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.agent_folder.agent_loader import AgentFolder
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.settings import project_trust
from mainspring.runtime.subagent import Subagent


class ChosenModel(Struct, frozen=True):
    """A model that a file names. It is trusted by itself: the rest of the file may change."""

    file: Path
    name: str

    def is_trusted(self, home: Path, *, is_copy: bool) -> bool:
        """`is_copy`: the file is a copy that this program made, so the trust in the same choice of
        the file that it was copied from counts."""
        key, content = project_trust.model_key(self.file), self.name.encode()
        check = project_trust.is_trusted_copy if is_copy else project_trust.is_trusted_file
        return check(key, content, home=home)

    def trust(self, home: Path) -> None:
        key = project_trust.model_key(self.file)
        project_trust.trust_file(key, self.name.encode(), home=home)


def named_models(loaded: AgentFolder) -> Iterator[ChosenModel]:
    """The models that the files of a folder itself name."""
    if loaded.agent_manifest.model:
        yield ChosenModel(loaded.folder / manifest.FILE, loaded.agent_manifest.model)
    for subagent in loaded.agent.subagents:
        if (named := _named_by(subagent, loaded.folder)) is not None:
            yield named


def without_other_providers(
    loaded: AgentFolder, is_other: Callable[[str], bool], *, home: Path, is_copy: bool
) -> AgentFolder:
    """Remove the models that nobody has trusted and that `is_other` says another provider serves,
    and say so."""
    if os.path.realpath(loaded.folder) == os.path.realpath(home):
        return loaded
    refused = [
        named
        for named in named_models(loaded)
        if is_other(named.name) and not named.is_trusted(home, is_copy=is_copy)
    ]
    if not refused:
        return loaded
    findings = map(partial(_finding, loaded), refused)
    by_source = loaded.findings_by_source
    own = ChosenModel(loaded.folder / manifest.FILE, loaded.agent_manifest.model)
    kept = "" if own in refused else own.name
    subagents = [
        replace_struct(item, model=None) if _named_by(item, loaded.folder) in refused else item
        for item in loaded.agent.subagents
    ]
    return replace(
        loaded,
        agent=replace(loaded.agent, model=kept, subagents=subagents),
        agent_manifest=replace(loaded.agent_manifest, model=kept),
        findings_by_source={**by_source, "manifest": (*by_source["manifest"], *findings)},
    )


def _named_by(subagent: Subagent, folder: Path) -> ChosenModel | None:
    file = Path(subagent.file)
    is_of_folder = subagent.scope == "project" or file.is_relative_to(folder)
    if not (subagent.model and subagent.file and is_of_folder):
        return None
    return ChosenModel(file, subagent.model)


def _finding(loaded: AgentFolder, named: ChosenModel) -> Finding:
    is_own = named.file == loaded.folder / manifest.FILE
    return Finding(
        level="warning",
        file=os.path.relpath(named.file, loaded.folder),
        line=loaded.agent_manifest.lines.get("model") if is_own else None,
        what=f"nobody has trusted this folder's choice of {named.name}, which another provider than"
        " yours serves, so your own model is used",
        fix="`mainspring policy trust` lets the folder choose; --model names a model once",
    )
