"""Commands that name the workspace as only the sandbox of the service knows it: `/workspace` and
`/mnt/session` are links to it, and `/mnt/memory` to a folder in it."""

ALIASES = ("/workspace", "/mnt/session", "/mnt/memory")

# A rule that forbids or asks, and what it must hold against as well.
ALIASED: dict[str, tuple[str, ...]] = {
    "Read(mnt/memory/team/**)": (
        "cat /mnt/memory/team/rules.md",
        "cd /mnt/memory && cat team/rules.md",
        "cd /mnt/memory/team; cat rules.md",
        "cat /mnt/memory/../memory/team/rules.md",
        "cat /workspace/mnt/memory/team/rules.md",
        "cat < /mnt//memory/./team/rules.md",
        "grep -R KEY /mnt/memory",
    ),
    "Edit(mnt/memory/**)": (
        "echo x > /mnt/memory/team/rules.md",
        "cp a /mnt/memory/b",
        "rm -rf /mnt/memory/team",
    ),
    "Read(.env)": (
        "cat /workspace/.env",
        "cat /mnt/session/.env",
        "cat //workspace//.env",
        "cat /workspace/./.env",
        "cat /mnt/../workspace/.env",
        "cat /workspace/src/../.env",
        "cat < /workspace/.env",
        "cd /workspace && cat .env",
        "cd /mnt && cat session/.env",
        "cd /workspace && cd .. && cat workspace/.env",
        "cd / && cat workspace/.env",
        "cd /mnt/session/src && cat ../.env",
        "pushd /workspace; cat .env",
        "grep --file=/workspace/.env a",
        "grep -R KEY /mnt",
        "grep -R KEY /workspace",
        "cp /workspace/.env b",
    ),
    "Edit(src/**)": (
        "cp a /mnt/session/src/b",
        "echo x > /workspace/src/b",
        "echo x >> /mnt/session/src/b",
        "cd /workspace/src && touch b",
        "cd /workspace; cd ..; touch workspace/src/b",
        "tee /workspace/src/b",
        "rm /mnt/session/src/b",
        "sed -i s/a/b/ /workspace/src/b",
    ),
    "Read(//workspace/keys/**)": ("cat /workspace/keys/k", "cd /workspace && cat keys/k"),
}

EMPTIES_WORKSPACE = (
    "rm -rf /workspace",
    "rm -rf /workspace/",
    "rm -rf /workspace/*",
    "rm -rf /workspace/.",
    "rm -rf /mnt/session",
    "rm -rf /mnt/session/*",
    "rm -rf /mnt/session/.[!.]*",
    "cd /workspace && rm -rf *",
    "cd /workspace/src && rm -rf ..",
    "cd / && rm -rf workspace/*",
    "rm -rf /workspace/src/../*",
    "find /workspace/ -delete",
    "find /mnt/session -exec rm {} +",
    "eval rm -rf /workspace/*",
)
