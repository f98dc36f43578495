"""The uids that programs of sessions run under if the harness is root, or has the capabilities of
root that this takes; and to whom new files in a session's folder belong. It claims no uid: see
`capabilities/sandbox/backends/session_uids.py`.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

SUBUID_NAME = "mainspring"
"""The name in /etc/subuid whose line says which uids may be used."""
SUBUID = Path("/etc/subuid")
_DEFAULT = range(0x7000_0000, 0x7FFE_0000)
"""Unused by convention: below are systemd-nspawn's, above systemd's own and the signed limit."""
_NOBODY = 65_534  # the uid of nobody on Linux
FEWEST_UIDS = 1024  # fewer make it likely that two sessions share one
CAPABILITIES_FOR_UIDS = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
}
"""What giving each session a uid of its own takes."""
_LENT = 0o1070
"""The mode of a folder that root shares with a session's group: see `landlock_lend.py`."""


@cache
def gives_uids() -> bool:
    """Whether this process can give each session a uid of its own."""
    if sys.platform != "linux":
        return hasattr(os, "geteuid") and os.geteuid() == 0
    return os.geteuid() == 0 or not missing_capabilities()


def missing_capabilities() -> list[str]:
    """Of `CAPABILITIES_FOR_UIDS`, those that this process does not have."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return [name for name, number in CAPABILITIES_FOR_UIDS.items() if not effective >> number & 1]


def available_uids() -> range:
    """The range that /etc/subuid grants us, else the unused default, as far as it exists here;
    empty if there are too few uids. The last id of the range is `entering_group`."""
    uids = _all_ids()[:-1]
    return uids if len(uids) >= FEWEST_UIDS else range(0)


def entering_group() -> int:
    """The group of all sessions' programs, which lets them enter the private folders above their
    workspaces. No session has this id as its uid."""
    return _all_ids()[-1]


def owner_of_new(folder: int) -> tuple[int, int]:
    """The owner and group of what root creates in an open folder: the folder's own, or the
    session's if the folder is shared with one because it has protected files in it."""
    state = os.fstat(folder)
    is_shared = state.st_uid == os.geteuid() and state.st_mode & _LENT == _LENT
    if is_shared and state.st_gid in available_uids():
        return state.st_gid, state.st_gid
    return state.st_uid, state.st_gid


def _all_ids() -> range:
    granted = _subuid_range() or _DEFAULT
    mapped = _mapped_uid_count()
    if mapped >= granted.stop and len(granted) > FEWEST_UIDS:
        return granted
    # a user namespace with few uids: its upper half, without `nobody`
    return range(mapped // 2, mapped if mapped // 2 > _NOBODY else min(mapped, _NOBODY))


def _subuid_range() -> range | None:
    try:
        lines = SUBUID.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if name == SUBUID_NAME and first.isdecimal() and count.isdecimal() and int(first):
            return range(int(first), int(first) + int(count))
    return None


def _mapped_uid_count() -> int:
    """The number of uids in this user namespace, from 0 on."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, count = map(int, line.split())
        if inside == 0:
            return count
    return 0
