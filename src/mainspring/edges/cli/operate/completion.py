"""`mainspring completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal, NoReturn, TypeAlias

import typer

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
# Typer, which parses the commands, reads these variables when a shell asks for completions.
_SCRIPTS: dict[Shell, str] = {
    "bash": r"""_mainspring_completion() {
    local IFS=$'\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        _MAINSPRING_COMPLETE=complete_bash "$1" ) )
}
complete -o default -F _mainspring_completion mainspring
""",
    "zsh": r"""#compdef mainspring
_mainspring_completion() {
    eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" \
        _MAINSPRING_COMPLETE=complete_zsh mainspring)
}
compdef _mainspring_completion mainspring
""",
    "fish": r"""set -l asked env _MAINSPRING_COMPLETE=complete_fish
complete --command mainspring --no-files \
    --arguments "($asked _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS=(commandline -cp) mainspring)" \
    --condition "$asked _TYPER_COMPLETE_FISH_ACTION=is-args \
        _TYPER_COMPLETE_ARGS=(commandline -cp) mainspring"
""",
}


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)],
) -> NoReturn:
    """Print a script for Tab completion. Use `eval "$(mainspring completion bash)"` in
    ~/.bashrc, the same with zsh in ~/.zshrc, `mainspring completion fish | source` in
    config.fish."""
    typer.echo(_SCRIPTS[shell], nl=False)
    raise typer.Exit
