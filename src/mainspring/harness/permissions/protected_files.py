"""The list of paths whose content runs later, or controls what runs, outside of the sandbox.

Permissions ask about every change to them; the sandbox mounts them read-only and sets new ones
aside (`harness/permissions/protected_path_watcher.py`). The list contains what takes effect when
somebody opens or enters the folder, or uses git or a package manager there. Ordinary project code
(`Makefile`, `package.json`) is not on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mainspring.files.file_names import fold_name

REPOSITORY_FOLDERS = frozenset((".git", ".hg", ".jj"))
"""Programs may change these, except what `IN_GIT` and `PROJECT_PATHS` name."""
IN_GIT = ("hooks", "config", "info", "config.worktree", "commondir")
"""In a git folder: files that name programs for git to run, or select its configuration."""
REBASE_LISTS = ("rebase-merge/git-rebase-todo", "rebase-apply/git-rebase-todo", "sequencer/todo")
"""In a git folder: the next steps of `git rebase --continue`. Their `exec` lines run programs."""

_LEFTHOOK = ("lefthook", ".lefthook", "lefthook-local", ".lefthook-local")
PROJECT_FOLDERS = frozenset(
    (
        *(".agents", ".amazonq", ".amp", ".augment", ".claude", ".clinerules", ".codex"),
        *(".continue", ".crush", ".cursor", ".gemini", ".goose", ".kilocode", ".kiro"),
        *(".opencode", ".qwen", ".roo", ".trae", ".windsurf"),  # agents
        *(".devcontainer", ".fleet", ".helix", ".idea", ".idx", ".lapce", ".nova", ".theia"),
        *(".vs", ".vscode", ".zed"),  # editors
        *(".direnv", ".husky", ".lefthook", ".mise", ".rtx", ".trunk"),
    )
)
PROJECT_FILES = frozenset(
    (
        *("agent.yaml", "hooks.json", "memory.md", ".mcp.json", "mcp.json", ".claude.json"),
        *(".aider.conf.yml", ".crush.json", "crush.json", "opencode.json", "opencode.jsonc"),
        *(".devcontainer.json", ".gitpod.yml", ".replit"),
        *(".gitmodules", ".gitconfig", ".hgrc"),
        *(".pre-commit-config.yaml", ".pre-commit-config.yml", ".overcommit.yml"),
        *("captainhook.json", ".huskyrc", ".huskyrc.json", ".huskyrc.js"),
        *(f"{name}.{kind}" for name in _LEFTHOOK for kind in ("yml", "yaml", "toml", "json")),
        *(f".lintstagedrc{kind}" for kind in ("", ".json", ".yaml", ".yml", ".js", ".cjs", ".mjs")),
        *(f"lint-staged.config.{kind}" for kind in ("js", "cjs", "mjs", "ts")),
        *(".autoenv", ".autoenv.zsh", ".envrc"),
        *(".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml", ".rtx.toml"),
        *(".tool-versions", ".bazelrc", ".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs"),
        *(".yarnrc", ".yarnrc.yml"),
        *(".exrc", ".gvimrc", ".lvimrc", ".nvim.lua", ".nvimrc", ".vimrc", ".dir-locals.el"),
        *(".gdbinit", ".lldbinit", ".pdbrc", ".ghci", ".iex.exs", ".irbrc", ".pryrc"),
        *(".rprofile", ".renviron"),
    )
)
PROJECT_PATHS = (
    *(".config/mise", ".config/mise.toml", ".hg/hgrc", ".jj/repo/config.toml"),
    *(".yarn/plugins", ".yarn/releases"),
)
PROJECT_SUFFIXES = (".code-workspace",)

_HOME_FOLDERS = frozenset((".aws", ".docker", ".gnupg", ".kube", ".ssh"))
_HOME_FILES = frozenset(
    (
        *(".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".profile"),
        *(".cshrc", ".kshrc", ".login", ".tcshrc", "config.fish"),
        *(".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc", ".inputrc"),
        *(".condarc", ".curlrc", ".netrc", ".pypirc", ".ripgreprc", ".wgetrc", "pip.conf"),
    )
)
"""Protected in a home folder. No workspace is one, so the sandbox need not know them."""
_ROOT_ONLY = frozenset(("agent.yaml", "hooks.json", "mcp.json", "memory.md"))
"""Our own files, which we read only in the root of a workspace."""

MEMORY_FOLDER = "memory"
"""In the root of a workspace: memories for later sessions. Only people and the memory tools write
there, so that a program or a web page cannot impersonate a person."""
MEMORY_HISTORY = ".history"
_MEMORY_INDEX = "memory.md"

_OWN_FOLDER = ".mainspring"
"""Hidden from programs completely; the host writes to it while they run."""
_FOLDERS = REPOSITORY_FOLDERS | PROJECT_FOLDERS | _HOME_FOLDERS | {_OWN_FOLDER}
_FILES = PROJECT_FILES | _HOME_FILES


def is_protected(path: str) -> bool:
    """Whether a change to a path needs approval, by the names in it."""
    folded = fold_path(path)
    *_, name = names = folded.split("/")
    return (
        name in _FILES
        or name.endswith(PROJECT_SUFFIXES)
        or not _FOLDERS.isdisjoint(names)
        or any(f"/{item}/" in f"/{folded}/" for item in PROJECT_PATHS)
        or _is_memory(folded.lstrip("/"))
    )


def _is_memory(path: str) -> bool:
    top, _, below = path.partition("/")
    return top == MEMORY_FOLDER and (
        below.endswith(".md") or f"{below}/".startswith(f"{MEMORY_HISTORY}/")
    )


def has_memories(folders: Collection[str], files: Collection[str]) -> bool:
    """Whether a folder with these entries contains memories: it has an index or versions, or no
    files of other kinds, since `memory/` may also be source code."""
    visible = {fold_name(name) for name in files if not name.startswith(".")}
    if MEMORY_HISTORY in folders or _MEMORY_INDEX in visible:
        return True
    if any(not name.endswith(".md") for name in visible):
        return False
    return bool(visible) or all(name.startswith(".") for name in folders)


def fold_path(path: str) -> str:
    """The path in the form that the most lenient file system compares."""
    return "/".join(name if name in (".", "..") else fold_name(name) for name in path.split("/"))


def protected_names(names: Iterable[str], *, is_root: bool = True) -> list[str]:
    """The names in a folder of a project that programs may neither create nor change."""
    protected = PROJECT_FOLDERS | (PROJECT_FILES if is_root else PROJECT_FILES - _ROOT_ONLY)
    folded = ((name, fold_name(name)) for name in names)
    return [name for name, fold in folded if fold in protected or fold.endswith(PROJECT_SUFFIXES)]
