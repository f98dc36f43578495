"""Scan rules for code: harm that remains after the skill is removed."""

from __future__ import annotations

from mainspring.runtime.packages.scan_rule import ScanRule, compile_pattern

_RC = r"\.(?:bashrc|zshrc|profile|bash_profile|bash_login|zprofile|zshenv|zlogin|config/fish)\b"
_HOME = r"(?:~|\$HOME|\$\{HOME\}|%USERPROFILE%|\$env:USERPROFILE)"
_SYSTEM = r"/(?:etc|usr|opt|bin|sbin|lib|boot|root|Library|System|var/(?:spool|lib|www))/"

PERSISTENCE_RULES: tuple[ScanRule, ...] = (
    ScanRule(
        "as-root",
        "code",
        "caution",
        "note",
        "It asks for administrator rights.",
        compile_pattern(r"(?:^|[\s;&|(`\"'])sudo\s+[-\w./]|\bdoas\s+\w|-Verb\s+RunAs"),
    ),
    ScanRule(
        "destroys",
        "code",
        "danger",
        "caution",
        "It deletes far more than its own files.",
        compile_pattern(
            (
                rf"\brm\s+(?:-\S+\s+)*-\w*[rf]\w*\s+(?:-\S+\s+)*[\"']?(?:/|{_HOME})/?\*?[\"']?"
                r"(?:[\s;&|`)]|$)"
            ),
            r"--no-preserve-root",
            r"\bmkfs\.\w|\bdd\s[^\n]*of=/dev/(?:sd|nvme|disk|hd)|:\(\)\s*\{\s*:\s*\|\s*:\s*&",
            r"rmtree\(\s*(?:os\.path\.expanduser\(\s*[\"']~[\"']\s*\)|Path\.home\(\)|[\"']/[\"'])",
        ),
    ),
    ScanRule(
        "guards-off",
        "code",
        "caution",
        "caution",
        "It disables a protection: certificates, quarantine, an agent's permissions.",
        compile_pattern(
            r"verify\s*=\s*False|NODE_TLS_REJECT_UNAUTHORIZED|StrictHostKeyChecking[= ]no",
            r"GIT_SSL_NO_VERIFY|curl\s[^\n]*(?:-k\b|--insecure)",
            r"dangerously[-_]?(?:skip|bypass|disable)[-_]?\w+|bypassPermissions|\bsetenforce\s+0",
            r"ufw\s+disable",
        ),
    ),
    ScanRule(
        "quarantine-off",
        "code",
        "danger",
        "caution",
        "It makes the system run what it would refuse.",
        compile_pattern(
            r"xattr\s[^\n]*com\.apple\.quarantine|xattr\s+-(?:\w*c\w*r|\w*r\w*c)\w*\s",
            r"spctl\s+--(?:master|global)-disable|csrutil\s+disable",
            r"DisableRealtimeMonitoring|Add-MpPreference\s+-Exclusion",
        ),
    ),
    ScanRule(
        "attributes-cleared",
        "code",
        "caution",
        "note",
        "It removes all attributes of a file, including the one that says where it came from.",
        compile_pattern(r"xattr\s+-c\s"),
    ),
    ScanRule(
        "starts-by-itself",
        "persistence",
        "danger",
        "caution",
        "It makes something run later, or whenever the machine or a shell starts.",
        compile_pattern(
            r"\bcrontab\s+(?:-(?:$|[\sie])|\S+\.\w|/)|\|\s*crontab\b|/etc/cron|/var/spool/cron",
            rf"(?:>>?|\btee\s+(?:-a\s+)?|open\(|appendFile\w*\(|write\w*\()[^\n]*{_RC}",
            rf"{_RC}[^\n]*(?:write_text|write\(|[\"']a[\"'])",
            r"Library/Launch(?:Agents|Daemons)|launchctl\s+(?:load|bootstrap)",
            r"systemctl\s[^\n]*\benable\b|\.config/(?:systemd/user|autostart)",
            r"\bschtasks\b|CurrentVersion\\+Run\b|(?:New|Register)-ScheduledTask",
            r"Start Menu\\+Programs\\+Startup",
            r"(?:>>?|\b(?:cp|mv|ln|install|tee|chmod)\b|open\(|write)[^\n]*\.git/hooks/",
            r"\.git/hooks/[^\n]*(?:write|[\"']w[\"'])",
            r"PYTHONSTARTUP|(?:site|user)customize\.py|/etc/ld\.so",
            rf"(?:LD_PRELOAD|DYLD_INSERT_LIBRARIES)[^\n]*{_RC}|/etc/environment",
            r"(?:>>?|\btee\b|open\(|write)[^\n]*authorized_keys",
        ),
    ),
    ScanRule(
        "loads-into-programs",
        "code",
        "caution",
        "note",
        "It loads code of its own into programs that it starts.",
        compile_pattern(r"LD_PRELOAD|DYLD_INSERT_LIBRARIES"),
    ),
    ScanRule(
        "shell-files",
        "persistence",
        "caution",
        None,
        "It refers to files that every new shell or commit runs.",
        compile_pattern(_RC, r"core\.hooksPath|\.git/hooks"),
    ),
    ScanRule(
        "agent-settings",
        "persistence",
        "caution",
        "caution",
        "It writes to files that control agents and persist: instructions, settings, servers.",
        compile_pattern(
            (
                r"(?:>>?\s*|\btee\s+(?:-a\s+)?)[\"']?\S*(?:CLAUDE\.md|AGENTS\.md|SOUL\.md"
                r"|MEMORY\.md|\.mcp\.json|settings(?:\.local)?\.json)"
            ),
            (
                r"\.(?:claude|mainspring|codex|cursor)/(?:settings|hooks|trusted|skills\.json"
                r"|mcp)[^\n]*(?:write|dump|[\"'][wa][\"'])"
            ),
            (
                r"(?:write|open)\w*\([^\n]*(?:CLAUDE\.md|AGENTS\.md|SOUL\.md"
                r"|\.mcp\.json)[^\n]*[\"'][wa][\"']"
            ),
        ),
    ),
    ScanRule(
        "writes-outside",
        "writing",
        "caution",
        "note",
        "It writes outside the skill and the project.",
        compile_pattern(
            rf"(?:>>?|\btee\s+(?:-a\s+)?)\s*[\"']?(?:{_SYSTEM}|{_HOME}/)",
            rf"\b(?:cp|mv|ln|install)\s[^\n]*\s[\"']?(?:{_SYSTEM}|{_HOME}/)",
            rf"open\(\s*[rf]?[\"'](?:{_SYSTEM}|~/)[^\"'\n]*[\"']\s*,\s*[\"'][wax]",
            r"open\([^\n]*expanduser\([^\n]*[\"'][wax]b?[\"']",
            r"(?:Path\.home\(\)|homedir\(\)|expanduser\()[^\n]*(?:write_|mkdir|writeFile|unlink)",
        ),
    ),
    ScanRule(
        "setuid",
        "writing",
        "danger",
        "caution",
        "Whoever runs the file then has the rights of its owner.",
        compile_pattern(r"chmod\s+(?:[ugoa]*\+\w*s|[46][0-7]{3})\b"),
    ),
)
