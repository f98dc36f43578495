"""The script that `bash` runs around a command, so that a new process each time behaves like one
shell.

The state (folder, exported environment, functions) stays in the sandbox, where programs could write
anyway; the host never reads it. The environment is data, separated by NUL; only the functions are
code, and they are restored only for calls that were not judged by their words alone. A shell that
ends without its trap (`exec`, a signal) leaves the state unchanged.
"""

from __future__ import annotations

MAX_COMMAND_BYTES = 100_000
"""Linux limits one argument to 128 KiB."""

# Variables that begin with __ms_ are not exported, so they reach neither programs nor the state.
# It must run in the bash 3.2 of macOS: no associative arrays, no mapfile.
# It forks only to create its folder, once, and to move the new state into place, to keep it cheap.
_PROLOGUE = r"""
exec 2>&1
cd -P .
__ms_last=$2 __ms_saved=0 __ms_seen=$3 __ms_keeps=$4 __ms_restart=$5 __ms_root=$PWD
__ms_home="${TMPDIR:-/tmp}/.shell-$6"
if [ "$__ms_restart" = 1 ]; then command -p rm -rf -- "$__ms_home"; fi
if [ ! -f "$__ms_home/state" ]; then
  (
    umask 077
    command -p mkdir -p -- "$__ms_home" && printf '%s\0\0' "$__ms_root" > "$__ms_home/state"
  ) 2>/dev/null
  if [ "$__ms_seen" = 1 ] && [ "$__ms_restart" = 0 ]; then
    echo "[the sandbox was started anew: a fresh shell in $__ms_root;" \
      "what was exported, defined or put in /tmp before is gone]"
  fi
fi
if [ "$__ms_keeps" = 1 ]; then
  compgen -e > "$__ms_home/given"
  while IFS= read -r __ms_name; do
    printf -v "__ms_had_$__ms_name" %s "${!__ms_name}"
  done < "$__ms_home/given"
fi
{
  IFS= read -r -d '' __ms_folder
  __ms_left=2000
  while [ $((__ms_left -= 1)) -gt 0 ] && IFS= read -r -d '' __ms_record; do
    if [ -z "$__ms_record" ]; then __ms_left=none; break; fi
    __ms_name=${__ms_record%%=*}
    case $__ms_name in
      [0-9]*|*[!A-Za-z0-9_]*|__ms_*|BASHOPTS|SHELLOPTS|BASH_ENV|ENV|PS4|IFS) continue ;;
    esac
    case $__ms_record in
      *=*) export "$__ms_name=${__ms_record#*=}" ;;
      *) unset -v "$__ms_name" ;;
    esac
  done
  __ms_code=
  if [ "$__ms_keeps$__ms_left" = 1none ]; then IFS= read -r -d '' __ms_code; fi
} 2>/dev/null < "$__ms_home/state"
if ! cd -P -- "${__ms_folder:-$__ms_root}" 2>/dev/null; then
  echo "[the folder $__ms_folder is gone; this ran in $__ms_root]"
else
  case $PWD/ in
    "$__ms_root"/*) ;;
    *) cd -- "$__ms_root"
       echo "[$__ms_folder is outside the workspace; this ran in $__ms_root]" ;;
  esac
fi
__ms_command=$1
set --
if [ "$__ms_keeps" = 1 ]; then
  eval "$__ms_code" 2>/dev/null
  trap "$__ms_last" EXIT
fi
unset -v __ms_record __ms_name __ms_left __ms_restart __ms_seen __ms_folder __ms_code
"""

# Runs last, however the command ended: normally, by `exit`, by `set -e`, by a syntax error. It
# disables what the command may have left on: xtrace, errexit, traps. It runs once more as the EXIT
# trap, unless the command has set another, and then only passes on the status.
_EPILOGUE = r"""{ __ms_status=$?; set +x; trap - DEBUG ERR RETURN; } >/dev/null 2>&1
[ "$__ms_saved" = 1 ] || {
  __ms_saved=1; set +euf +o posix; IFS=
  builtin cd -P .
  __ms_folder=$PWD __ms_notice=
  case $__ms_folder/ in
    "$__ms_root"/*) [ "$__ms_folder" -ef . ] || __ms_notice="is gone" ;;
    *) __ms_notice="is outside the workspace" ;;
  esac
  if [ -n "$__ms_notice" ]; then
    __ms_notice="[$__ms_folder $__ms_notice; the next command starts in $__ms_root]"
    __ms_folder=$__ms_root
  fi
  __ms_full=
  builtin compgen -e > "$__ms_home/now" || __ms_full=1
  {
    builtin printf '%s\0' "$__ms_folder" || __ms_full=1
    while builtin read -r __ms_name; do
      case $__ms_name in PWD|SHLVL|_) continue ;; esac
      __ms_had=__ms_had_$__ms_name
      if [ -z "${!__ms_had+x}" ] || [ "${!__ms_had}" != "${!__ms_name}" ]; then
        builtin printf '%s=%s\0' "$__ms_name" "${!__ms_name}" || __ms_full=1
      fi
    done < "$__ms_home/now"
    while builtin read -r __ms_name; do
      case $__ms_name in PWD|SHLVL|_|OLDPWD) continue ;; esac
      if [ -z "${!__ms_name+x}" ]; then builtin printf '%s\0' "$__ms_name"; fi
    done < "$__ms_home/given"
    builtin printf '\0' && builtin declare -f && builtin declare -Fx || __ms_full=1
  } > "$__ms_home/state.new" || __ms_full=1
  if [ -n "$__ms_full" ]; then
    __ms_notice="[no room in ${__ms_home%/*}: the next command finds the shell as this one did]"
  else
    command -p mv -f -- "$__ms_home/state.new" "$__ms_home/state"
  fi
} >/dev/null 2>&1
if [ -n "$__ms_notice" ]; then builtin echo "$__ms_notice" 2>/dev/null; __ms_notice=; fi
exit $__ms_status
"""

# `eval` must neither be in a condition, where `set -e` has no effect, nor have redirections, which
# an `exec` of the command would undo.
_BODY = 'eval "$__ms_command"\n'


def wrap_command(
    command: str, *, shell: str, keeps_state: bool, was_used: bool, restart: bool
) -> tuple[str, ...]:
    """The command to run. `shell` names the state; `was_used`: report if the state is missing."""
    script = _PROLOGUE + _BODY + (_EPILOGUE if keeps_state else "")
    flags = ["1" if flag else "0" for flag in (was_used, keeps_state, restart)]
    return (
        "bash", "--noprofile", "--norc", "-c", script, "bash", command, _EPILOGUE, *flags, shell,
    )  # fmt: skip
