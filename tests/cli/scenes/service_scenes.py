"""Options of commands about a service: keys, tenants, approvals, schedules, webhooks, its store."""

from tests.cli.scenes.scene import JSON, Scene, Scenes, hides, shows

_ACME = shows("--tenant acme", "of acme")
SCENES: Scenes = {
    "keys create": Scene(
        place="service",
        base="ci",
        options={
            "--json": JSON,
            "--tenant": _ACME,
            "--role": shows("--role viewer", '"role":"viewer"'),
            "--agent": shows("--agent $agent", '"agent_id":"$agent"'),
            "--environment": shows("--environment $environment", '"$environment"'),
            "--lent-to": shows("--lent-to $agent", '"$agent"'),
            "--grant": shows("--grant $file", '"$file"', "ci --agent $agent"),
            "--expires-in": shows("--expires-in 30d", '"expires_at":"'),
            "--rate": shows("--rate 77", ":77"),
            "--daily-budget": shows("--daily-budget 7.25", "7.25"),
        },
    ),
    "keys ls": Scene(
        place="service",
        options={
            "--json": JSON,
            "--tenant": hides("--tenant acme", "first-key"),
            "--all": shows("--all", "revoked-key"),
        },
    ),
    "keys revoke": Scene(place="service", base="$key", options={"--json": JSON}),
    "tenants create": Scene(
        place="service",
        base="team",
        options={
            "--json": JSON,
            "--name": shows("--name special", "special"),
            "--rate": shows("--rate 77", ":77"),
            "--daily-budget": shows("--daily-budget 7.25", "7.25"),
            "--agent-budget": shows("--agent-budget '*=7.25'", "7.25"),
        },
    ),
    "tenants set": Scene(
        place="service",
        base="acme --rate 5",
        options={
            "--json": JSON,
            "--name": shows("--name special", "special"),
            "--rate": shows("--rate 77", ":77", "acme --name special"),
            "--daily-budget": shows("--daily-budget 7.25", "7.25"),
            "--agent-budget": shows("--agent-budget '*=7.25'", "7.25"),
        },
    ),
    "tenants ls": Scene(place="service", options={"--json": JSON}),
    "tenants show": Scene(place="service", base="acme", options={"--json": JSON}),
    "tenants enable": Scene(place="service", base="acme", options={"--json": JSON}),
    "tenants disable": Scene(place="service", base="acme", options={"--json": JSON}),
    "halt": Scene(
        place="service",
        base="--tenant acme",
        options={
            "--json": JSON,
            "--agent": shows("--agent $agent", "$agent"),
            "--tenant": shows("--tenant acme", "stopped acme", ""),
            "--all": shows("--all", "stopped everything", ""),
            "--reason": shows("--reason special", "special"),
        },
    ),
    "resume": Scene(
        place="halted",
        base="--tenant acme",
        options={
            "--json": JSON,
            "--agent": shows("--agent $agent", "exit 1"),
            "--tenant": hides("--tenant acme", "name what to resume", ""),
            "--all": hides("--all", "name what to resume", ""),
        },
    ),
    "audit ls": Scene(
        place="service",
        options={
            "--json": JSON,
            "--tenant": hides("--tenant acme", "keys revoke"),
            "--limit": hides("--limit 1", "keys revoke"),
            "--key": hides("--key nobody", "keys create"),
        },
    ),
    "audit export": Scene(
        place="service", options={"--tenant": hides("--tenant acme", "keys revoke")}
    ),
    "audit verify": Scene(
        place="service",
        options={
            "--json": JSON,
            "--tenant": hides("--tenant acme", "3 entries"),
            "--head": shows("--head 00", "exit 1"),
        },
    ),
    "audit prune": Scene(
        place="service",
        base="--older-than 1d",
        options={
            "--json": JSON,
            "--older-than": hides("--older-than 1d", "Missing option", ""),
        },
    ),
    "audit prune #acme": Scene(
        place="old_audit",
        base="--older-than 1d",
        options={"--tenant": hides("--tenant acme", "deleted 3 entries")},
    ),
    "doctor": Scene(place="empty", options={"--json": JSON}),
    "adopt": Scene(
        place="foreign",
        options={
            "--json": JSON,
            "--all": shows("--all", "adopted:", "--yes"),
            "--yes": shows("--yes", "adopted:", "--all"),
        },
    ),
    "backup": Scene(place="service", base="out.backup", options={"--json": JSON}),
    "restore": Scene(
        place="backed_up",
        base="out.backup",
        options={"--json": JSON, "--into": hides("--into new.db", "a question")},
    ),
    "migrate": Scene(
        place="old_tables",
        options={
            "--json": JSON,
            "--to": shows("--to 4", "4"),
            "--check": shows("--check", "exit 1", ""),
        },
    ),
    "vault ls": Scene(place="service", options={"--json": JSON}),
    "vault rm": Scene(place="service", base="TOKEN", options={"--json": JSON}),
    "vault set": Scene(
        place="service",
        base="OTHER",
        stdin="hunter2hunter2\n",
        options={"--json": JSON, "--host": shows("--host api.example.com", "api.example.com")},
    ),
    "approvals ls": Scene(
        place="approvals",
        options={
            "--json": JSON,
            "--tenant": hides("--tenant acme", "edit"),
            "--agent": hides("--agent agent_none", "edit"),
            "--session": hides("--session sesn_none", "edit"),
            "--all": shows("--all", "shell"),
        },
    ),
    "approvals show": Scene(
        place="approvals",
        base="$call",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "exit 1")},
    ),
    "approvals allow": Scene(
        place="waiting",
        base="$call --yes",
        options={
            "--json": JSON,
            "--tenant": shows("--tenant acme", "exit 1"),
            "--for-session": shows("--for-session", "permission.updated"),
            "--form": shows("--form '{}'", "exit 1"),
            "--choice": shows("--choice one", "exit 1"),
            "--yes": shows("--yes", "exit 0", "$call $tool"),
        },
    ),
    "approvals deny": Scene(
        place="waiting",
        base="$call --yes",
        options={
            "--json": JSON,
            "--tenant": shows("--tenant acme", "exit 1"),
            "--message": shows("--message special", "special"),
            "--yes": shows("--yes", "exit 0", "$call $tool"),
        },
    ),
    "approvals policy": Scene(
        place="approvals",
        options={
            "--json": JSON,
            "--tenant": hides("--tenant acme", "of agent_1", "--agent agent_1"),
            "--agent": shows("--agent agent_1 --role admin", "agent_1"),
            "--role": shows("--role admin", "admin"),
            "--four-eyes": shows("--four-eyes", '"four_eyes":true'),
            "--no-four-eyes": hides("--no-four-eyes", '"four_eyes":true', "--four-eyes"),
            "--expires-after": shows("--expires-after 2h", "7200"),
            "--on-expiry": shows("--on-expiry leave", "leave"),
            "--escalate-after": shows("--escalate-after 30m", "1800"),
            "--escalate-to": shows("--escalate-to special", "special", "--escalate-after 30m"),
            "--escalated-role": shows(
                "--escalated-role admin", "for admin", "--escalate-after 30m"
            ),
            "--reset": hides("--reset", "of agent_1", "--agent agent_1"),
        },
    ),
    "sessions answer": Scene(
        place="approvals",
        base="$session $call deny",
        options={
            "--message": shows("--message special", "special"),
            "--form": shows("--form '{}'", "exit 1"),
            "--choice": shows("--choice one", "exit 1"),
        },
    ),
    "policy check": Scene(
        place="rules",
        base="'Bash(ls)'",
        options={
            "--json": JSON,
            "--tool": shows("--tool Write", "deny", '--input \'{"file_path": "a"}\''),
            "--input": shows('--input \'{"file_path": "a"}\'', "Write(a)", "--tool Write"),
            "--mode": shows("--mode bypassPermissions", "exit 0", "'Bash(make)'"),
            "--sandbox": hides(
                "--sandbox", "exit 3", "'Edit(a)' --mode bypassPermissions --no-sandbox"
            ),
            "--no-sandbox": shows("--no-sandbox", "exit 3", "'Edit(a)' --mode bypassPermissions"),
        },
    ),
    "policy explain": Scene(place="rules", options={"--json": JSON}),
    "models ls": Scene(place="empty", options={"--json": JSON}),
    "models test": Scene(place="empty", base="ollama:test", options={"--json": JSON}),
    "deployments ls": Scene(
        place="schedules",
        base="--tenant acme",
        options={
            "--json": JSON,
            "--tenant": shows("--tenant acme", "nightly", ""),
            "--all": shows("--all", "archived"),
        },
    ),
    "deployments show": Scene(
        place="schedules",
        base="--tenant acme $deployment",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "nightly", "$deployment")},
    ),
    "deployments pause": Scene(
        place="schedules",
        base="--tenant acme $deployment",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "paused", "$deployment")},
    ),
    "deployments unpause": Scene(
        place="schedules",
        base="--tenant acme $deployment",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "exit 0", "$deployment")},
    ),
    "deployments run": Scene(
        place="schedules",
        base="--tenant acme $deployment",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "exit 0", "$deployment")},
    ),
    "deployments runs": Scene(
        place="schedules",
        base="--tenant acme",
        options={
            "--json": JSON,
            "--tenant": shows("--tenant acme", "$run", ""),
            "--failed": hides("--failed", "$run"),
            "--limit": hides("--limit 1", "$run"),
        },
    ),
    "webhooks ls": Scene(
        place="schedules",
        base="--tenant acme",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "$webhook", "")},
    ),
    "webhooks deliveries": Scene(
        place="schedules",
        base="--tenant acme $webhook",
        options={
            "--json": JSON,
            "--tenant": shows("--tenant acme", "pending", "$webhook"),
            "--dead": hides("--dead", "pending"),
            "--limit": hides("--limit 1", "$older_delivery"),
        },
    ),
    "webhooks resend": Scene(
        place="schedules",
        base="--tenant acme $webhook",
        options={"--json": JSON, "--tenant": shows("--tenant acme", "exit 0", "$webhook")},
    ),
    "": Scene(
        place="empty",
        options={"--version": shows("--version", "mainspring 0")},
    ),
}
