"""Scan rules for code: the network, secrets, and code from elsewhere."""

from __future__ import annotations

import re2

from mainspring.runtime.packages.scan_rule import ScanRule, compile_pattern

# Parts of several patterns.
_GET = r"(?:curl|wget|fetch|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b"
_RUN = (
    r"(?:sudo\s+(?:-\w+\s+)*)?(?:/usr)?(?:/bin/)?(?:env\s+)?"
    r"(?:ba|z|da|k|fi)?sh\b"
)
_RUN_ANY = rf"(?:{_RUN}|(?:sudo\s+)?(?:python[0-9.]*|perl|ruby|node|php|iex|Invoke-Expression)\b)"
_REST = r"(?:[^\n|]|\\\n)*"
_SECRET_FILE = (
    r"(?:\.ssh/|\.ssh\b['\"]|\.aws/|\.gnupg|\.kube/config|\.docker/config|\.netrc|\.npmrc|\.pypirc"
    r"|\.git-credentials|\.config/(?:gh|gcloud)|\bid_(?:rsa|ed25519|ecdsa|dsa)\b)"
)
_UPLOAD = r"(?:curl|wget|nc|ncat|netcat|scp|rsync|Invoke-RestMethod|Invoke-WebRequest)\b"

PIPED_TO_SHELL = ScanRule(
    "piped-to-shell",
    "code",
    "danger",
    "danger",
    "It runs what it fetches: whoever controls that server decides what it does.",
    compile_pattern(
        rf"{_GET}{_REST}\|\s*{_RUN_ANY}",
        rf"{_RUN}\s+(?:-c\s+)?[\"']?(?:<|\$)\(\s*{_GET}",
        rf"(?:eval|source|\.)\s+[\"']?(?:<|\$)\(\s*{_GET}",
        rf"(?:iex|Invoke-Expression)\s*\(+\s*(?:{_GET}|New-Object\s+Net\.WebClient)",
        r"(?:exec|eval)\s*\(\s*(?:requests\.get|urllib\.request\.urlopen|urlopen|httpx\.get)\b",
    ),
)
KNOWN_INSTALLERS = compile_pattern(
    r"https://(?:astral\.sh|sh\.rustup\.rs|get\.docker\.com|bun\.(?:sh|com)|deno\.land|get\.pnpm\.io"
    r"|deb\.nodesource\.com|install\.python-poetry\.org|ollama\.com|mise\.run|cli\.github\.com"
    r"|raw\.githubusercontent\.com/(?:Homebrew/install|nvm-sh/nvm|helm/helm)"
    r"|claude\.ai|install\.duckdb\.org|fly\.io|foundry\.paradigm\.xyz)(?:[/\s\"'|)]|$)"
)
"""Installers of popular tools: still somebody else's code, but expected."""

NETWORK = ScanRule(
    "network-use",
    "network",
    "caution",
    "note",
    "It uses the network.",
    compile_pattern(
        (
            r"\b(?:curl|wget|ncat|netcat|telnet|scp|sftp|Invoke-WebRequest"
            r"|Invoke-RestMethod)\s+[-\w\"'$./]"
        ),
        r"\bnc\s+-?[\w.]+",
        r"\brequests\.(?:get|post|put|patch|delete|head|request|Session)\b",
        r"\burllib\.request|\burlopen\(|\burllib3\.|\bhttpx\.\w|\baiohttp\.\w|\bhttp\.client\b",
        r"\bsocket\.(?:socket|create_connection|gethostbyname)\(|\bwebsockets?\.connect",
        r"\bsmtplib\.|\bftplib\.|\bparamiko\.",
        r"\bfetch\(\s*[\"'`\w]|\baxios\b|XMLHttpRequest|new\s+WebSocket\(",
        r"\bhttps?\.(?:get|request)\(",
        r"\bnet\.(?:connect|createConnection)\(|Net::HTTP|LWP::|open-uri|fsockopen|curl_exec",
    ),
)
SECRET_FILES = ScanRule(
    "secret-files",
    "secrets",
    "caution",
    "caution",
    "It refers to places where keys and passwords are stored.",
    compile_pattern(
        _SECRET_FILE,
        r"/etc/(?:shadow|sudoers)\b|/proc/(?:self|\d+|\*)/environ",
        r"security\s+(?:find-(?:generic|internet)-password|dump-keychain)|login\.keychain",
        r"keyring\.get_password|secret-tool\s+lookup|\bpass\s+show\b|\bcmdkey\s+/list",
        r"(?:Chrome|Chromium|Firefox|Brave|Edge)[^\n]*(?:Login Data|Cookies\b|Local State)",
        r"\blogins\.json\b|\bkey4\.db\b|wallet\.dat|\.ethereum/|\.electrum|solana/id\.json",
        r"MetaMask",
    ),
)
_DECODING = compile_pattern(
    r"b64decode|base64\s+(?:-d|-D|--decode)|\batob\(|bytes\.fromhex|unhexlify|zlib\.decompress",
    r"codecs\.decode|rot_?13|Buffer\.from\([^\n]*base64|b85decode|FromBase64String|marshal\.loads",
)
DYNAMIC = ScanRule(
    "dynamic-code",
    "code",
    "caution",
    None,
    "It runs code that it generates: what it does cannot be read here.",
    compile_pattern(
        r"(?:^|[^.\w])(?:eval|exec)\s*\(",
        r"(?:^|[;&|\n])\s*eval\s+[\"'$]",
        r"new\s+Function\s*\(|\b__import__\s*\(|vm\.runIn\w+\(",
        r"\b(?:pickle|dill|cloudpickle|marshal)\.loads?\(",
        r"\byaml\.(?:unsafe_)?load\([^\n]*(?:Unsafe)?Loader=yaml\.(?:Unsafe)?Loader",
        r"getattr\(\s*(?:__builtins__|builtins|os)\s*,|(?:chr\(\d+\)\s*\+\s*){3}",
        r"(?:\\x[0-9a-f]{2}){12}",
        r"Invoke-Expression|\biex\b\s*[($]",
    ),
)

CODE_RULES: tuple[ScanRule, ...] = (
    PIPED_TO_SHELL,
    NETWORK,
    SECRET_FILES,
    DYNAMIC,
    ScanRule(
        "reverse-shell",
        "network",
        "danger",
        "danger",
        "It gives somebody else a shell on this machine.",
        compile_pattern(
            r"/dev/(?:tcp|udp)/",
            r"\b(?:nc|ncat|netcat)\b[^\n]*\s-[a-z]*[ec]\s*\S*sh\b",
            r"\bmkfifo\b[^\n]*\b(?:nc|ncat|netcat)\b",
            r"\bpty\.spawn\(|os\.dup2\(\s*\w+\.fileno\(\)\s*,|\bbash\s+-i\s*[>&]|socat\b[^\n]*EXEC:",
        ),
    ),
    ScanRule(
        "cloud-metadata",
        "secrets",
        "danger",
        "danger",
        "Cloud machines provide their credentials at this address.",
        compile_pattern(r"169\.254\.169\.254|metadata\.google\.internal|fd00:ec2::254"),
    ),
    ScanRule(
        "drop-box",
        "network",
        "danger",
        "danger",
        "A service that shows what is sent to it: used to exfiltrate data.",
        compile_pattern(
            r"webhook\.site|requestbin\.|requestcatcher\.com|interact\.sh",
            r"\boast(?:ify)?\.(?:com|fun|pro|live|site|online|me)\b",
            r"burpcollaborator|\.m\.pipedream\.net|beeceptor\.com|hookbin\.com",
        ),
    ),
    ScanRule(
        "hides-the-server",
        "network",
        "caution",
        "caution",
        "An address that hides its owner: a URL shortener, a tunnel, a paste site.",
        compile_pattern(
            r"https?://(?:bit\.ly|tinyurl\.com|t\.co|is\.gd|goo\.gl|rb\.gy|cutt\.ly)/",
            (
                r"\b(?:pastebin\.com|paste\.rs|paste\.ee|rentry\.co|glot\.io|termbin\.com|0x0\.st"
                r"|file\.io|transfer\.sh)\b"
            ),
            r"\bngrok(?:-free)?\.(?:io|app|dev)\b|trycloudflare\.com|\.loca\.lt\b|\.onion\b",
            r"discord(?:app)?\.com/api/webhooks|api\.telegram\.org/bot",
            (
                # An address outside private networks, judged by its first number.
                r"https?://(?:[2-9]|1[1-9]|[2-9]\d|1[013-58]\d|12[0-689]|16[0-8]|17[013-9]"
                r"|19[013-9]|2[0-2]\d)\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"
            ),
        ),
    ),
    ScanRule(
        "carries-secrets-away",
        "secrets",
        "danger",
        "danger",
        "It sends files with secrets or the whole environment somewhere.",
        compile_pattern(
            (
                rf"{_UPLOAD}[^\n]*(?:@|-T\s*|--upload-file\s*|--post-file[= ]|\$\(\s*cat\s+"
                rf"|<\s*)[^\n]*(?:{_SECRET_FILE}|\.env\b|/etc/passwd)"
            ),
            (
                rf"(?:cat|base64|tar|zip|gzip|xxd)\b[^\n]*(?:{_SECRET_FILE}|\.env\b"
                rf"|/etc/passwd)[^\n]*\|[^\n]*{_UPLOAD}"
            ),
            rf"(?:scp|rsync)\s+(?:-[^i\s]\S*\s+)*[^\s-]\S*{_SECRET_FILE}[^\n]*\S+@\S+:",
            rf"\b(?:env|printenv|set)\b\s*\|[^\n]*{_UPLOAD}",
            rf"{_UPLOAD}[^\n]*\$\(\s*(?:env|printenv|set)\b",
            r"(?:json|data|body|params)\s*[=:]\s*(?:json\.dumps\(|str\()?(?:dict\()?os\.environ\b",
            r"JSON\.stringify\(\s*\{?\s*(?:\.\.\.)?process\.env\s*[,)}]",
        ),
    ),
    ScanRule(
        "secret-variables",
        "secrets",
        "caution",
        "note",
        "It uses a variable whose name suggests a secret.",
        compile_pattern(
            (
                r"(?:os\.environ|os\.getenv|getenv|process\.env|\bENV\[|\$env:)[^\n]*?(?:KEY"
                r"|TOKEN|SECRET|PASSW|CREDENTIAL)"
            ),
            r"\$\{?[A-Z0-9_]*(?:API_?KEY|TOKEN|SECRET|PASSWORD)\b",
        ),
    ),
    ScanRule(
        "whole-environment",
        "secrets",
        "caution",
        "note",
        "It reads all environment variables, or a file of them; they include secrets.",
        compile_pattern(
            r"\bprintenv\b|(?:^|[\s;])env\s*(?:\||>)|os\.environ\.items\(",
            r"Object\.\w+\(\s*process\.env\s*\)",
            r"(?:\bcat|\bsource|\bopen\(|read_text|readFile\w*\()[^\n]{0,40}?\.env\b|load_dotenv",
        ),
    ),
    ScanRule(
        "decoded-and-run",
        "code",
        "danger",
        "danger",
        "It runs obfuscated code.",
        compile_pattern(
            rf"base64\s+(?:-d|-D|--decode)[^\n]*\|\s*{_RUN_ANY}|xxd\s+-r[^\n]*\|\s*{_RUN_ANY}",
            (
                r"(?:exec|eval|Function)\s*\([^\n]*(?:b64decode|base64|\batob\(|fromhex|unhexlify"
                r"|decompress|marshal\.loads|codecs\.decode|Buffer\.from)"
            ),
            r"\beval\s+[\"']?\$\([^\n]*base64",
            r"powershell[^\n]*\s-e(?:nc|ncodedcommand)?\s+[a-z0-9+/=]{16}",
        ),
    ),
    ScanRule(
        "fetched-and-run",
        "code",
        "caution",
        "caution",
        "It fetches a program and makes it executable.",
        compile_pattern(
            rf"{_GET}[^\n]*(?:&&|;)[^\n]*(?:chmod\s+(?:\+x|a\+x|u\+x|0?7)|{_RUN}\s+\S|\./\w)",
            r"\bpip3?\s+install\s[^\n]*(?:git\+|https?://|--(?:extra-)?index-url)",
            r"npm\s+\w+[^\n]*--registry",
        ),
    ),
    ScanRule(
        "runs-programs",
        "code",
        "note",
        None,
        "It starts other programs.",
        compile_pattern(
            r"\bsubprocess\.\w|\bos\.(?:system|popen|exec\w+|spawn\w+)\(|child_process",
            r"\bexecSync\(|\bspawn(?:Sync)?\(",
            r"Runtime\.getRuntime\(\)|Start-Process|\bpopen\(|shell_exec\(|anyio\.run_process",
        ),
    ),
    ScanRule(
        "through-a-shell",
        "code",
        "caution",
        None,
        "It passes text to a shell, which may run it.",
        compile_pattern(r"shell\s*=\s*True|\bos\.(?:system|popen)\(|shell:\s*true|shell_exec\("),
    ),
    ScanRule(
        "installs-packages",
        "code",
        "note",
        "note",
        "It installs packages, which run their own code.",
        compile_pattern(
            (
                r"\b(?:pip3?|pipx|uv|uv\s+pip|npm|pnpm|yarn|bun|brew|apt|apt-get|dnf|yum|apk"
                r"|cargo|gem|go)\s+(?:install|add|i)\b"
            ),
            r"\b(?:npx|uvx|bunx|pipx\s+run)\s+[-@\w]",
        ),
    ),
)

PAIR_RULES: tuple[tuple[ScanRule, re2.Pattern[bytes]], ...] = (
    (
        ScanRule(
            "secrets-and-network",
            "secrets",
            "danger",
            None,
            "It reads places with secrets and uses the network: it could exfiltrate them.",
            SECRET_FILES.regex_pattern,
        ),
        NETWORK.regex_pattern,
    ),
    (
        ScanRule(
            "unreadable-code",
            "code",
            "danger",
            None,
            "It decodes something and runs generated code: what it does cannot be read.",
            DYNAMIC.regex_pattern,
        ),
        _DECODING,
    ),
)
"""Rules that are worse if the second one matches in the same script."""

BLOB = ScanRule(
    "encoded-blob",
    "hidden",
    "caution",
    "caution",
    "A long encoded text that people cannot read.",
    compile_pattern(r"(?:[a-z0-9+/]{40}[a-z0-9+/]*\n?)+[a-z0-9+/]*={0,2}"),
)
LONG_LINE = ScanRule(
    "long-line",
    "hidden",
    "caution",
    "note",
    "A line that is too long to read.",
    BLOB.regex_pattern,
)
LIFECYCLE = ScanRule(
    "runs-at-install",
    "code",
    "caution",
    None,
    "A package manager runs it when the package is installed.",
    compile_pattern(r"\"(?:pre|post)?(?:install|prepare)\"\s*:"),
)
