"""Secrets that nobody told us about, by what they look like. Taking them out is the scrubber's.

Patterns are for RE2: linear in any text. The last group is what is taken out. A pattern ends where
its characters end or at a word's end, so that what is taken out uncovers nothing.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mainspring.capabilities.vault.patterns import Match, Pattern, compiled

Check: TypeAlias = Callable[[bytes], bool]

_START = r"(?:\b|\\[nrt]|\x1b\[[0-9;]*m)"
"""Of a token: also after an escaped line end and after a colour."""


@dataclass(frozen=True, slots=True)
class Detector:
    kind: str
    trigger: str
    """A cheap pattern that is in every text that has such a secret, and in few others."""
    pattern: Pattern
    is_secret: Check = lambda _: True
    group: int = 1
    """The last one."""

    def redacted(self, text: bytes) -> bytes:
        found = False
        pieces: list[bytes] = []
        end = 0
        for match in self.pattern.finditer(text):
            start, stop = match.span(self.group)
            if self.is_secret(match.group(self.group)) and self._is_meant(
                match, text[stop : stop + 1]
            ):
                pieces += (text[end:start], label(self.kind))
                end, found = stop, True
        return b"".join((*pieces, text[end:])) if found else text

    def _is_meant(self, match: Match, after: bytes) -> bool:
        """Of an assignment: to such a name, and not of what a function gives."""
        return self.group == 1 or (after != b"(" and names_secret(match.group(1)))


def label(kind: str) -> bytes:
    return f"[redacted:{kind}]".encode()


ASSIGNED = "assigned_secret"

_TOKENS: Mapping[str, tuple[str, str]] = {
    # kind: (trigger, the rest); the trigger is where the token begins
    "aws_access_key_id": ("A(?:KIA|SIA|BIA|CCA)", r"[A-Z0-9]{16}\b"),
    "aws_bedrock_key": ("ABSK", r"[A-Za-z0-9+/]{100,}=*"),
    "google_api_key": ("AIza", r"[0-9A-Za-z_-]{35,}"),
    "google_client_secret": ("GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
    "google_access_token": (r"ya29\.", r"[0-9A-Za-z_.-]{20,}"),
    "google_refresh_token": ("1//0", r"[A-Za-z0-9_-]{40,}"),
    "digitalocean_token": ("do[por]_v1_", r"[a-f0-9]{64}\b"),
    "alibaba_access_key": ("LTAI", r"[A-Za-z0-9]{16,26}\b"),
    "tencent_secret_id": ("AKID", r"[A-Za-z0-9]{32,}"),
    "github_token": ("gh[pousr]_", r"[A-Za-z0-9_]{36,}"),
    "github_fine_grained_token": ("github_pat_", r"[A-Za-z0-9_]{22,}"),
    "gitlab_token": ("gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-", r"[A-Za-z0-9_.-]{20,}"),
    "gitlab_runner_token": ("GR1348941", r"[A-Za-z0-9_-]{20,}"),
    "bitbucket_app_password": ("ATBB", r"[A-Za-z0-9]{32,}"),
    "atlassian_token": ("ATATT3", r"[A-Za-z0-9_=-]{60,}"),
    "slack_token": ("xox[abceoprs]-", r"[A-Za-z0-9-]{10,}"),
    "slack_app_token": ("xapp-", r"\d-[A-Z0-9]+-\d+-[a-f0-9]{32,}"),
    "slack_webhook": (r"hooks\.slack\.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9+/]{30,}"),
    "discord_webhook": (r"discord(?:app)?\.com/api/webhooks/", r"\d{17,20}/[A-Za-z0-9_-]{60,}"),
    "stripe_key": ("[sr]k_(?:live|test)_", r"[A-Za-z0-9]{16,}"),
    "webhook_secret": ("whsec_", r"[A-Za-z0-9+/_-]{24,}=*"),
    "square_token": ("sq0(?:atp|csp|idp)-", r"[A-Za-z0-9_-]{22,}"),
    "braintree_token": (r"access_token\$(?:production|sandbox)\$", r"[a-z0-9]{16}\$[a-f0-9]{32}\b"),
    "shopify_token": ("shp(?:at|ca|pa|ss)_", r"[a-fA-F0-9]{32}\b"),
    "twilio_key": ("SK[a-f0-9]{4}", r"[a-f0-9]{28}\b"),
    "sendgrid_key": (r"SG\.", r"[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,}"),
    "mailgun_key": ("key-[a-f0-9]{4}", r"[a-f0-9]{28}\b"),
    "anthropic_key": ("sk-ant-", r"[A-Za-z0-9_-]{20,}"),
    "openrouter_key": ("sk-or-", r"[A-Za-z0-9_-]{20,}"),
    "huggingface_token": ("hf_", r"[A-Za-z0-9]{30,}"),
    "replicate_token": ("r8_", r"[A-Za-z0-9]{37,}"),
    "groq_key": ("gsk_", r"[A-Za-z0-9]{40,}"),
    "xai_key": ("xai-", r"[A-Za-z0-9]{60,}"),
    "perplexity_key": ("pplx-", r"[A-Za-z0-9]{40,}"),
    "langsmith_key": ("lsv2_(?:pt|sk)_", r"[a-f0-9]{32}_[a-f0-9]{10}\b"),
    "npm_token": ("npm_", r"[A-Za-z0-9]{36,}"),
    "pypi_token": ("pypi-", r"[A-Za-z0-9_-]{50,}"),
    "rubygems_key": ("rubygems_", r"[a-f0-9]{48}\b"),
    "crates_token": ("cio[A-Za-z0-9]{4}", r"[A-Za-z0-9]{28}\b"),
    "nuget_key": ("oy2[a-z0-9]{4}", r"[a-z0-9]{39}\b"),
    "docker_token": ("dckr_(?:pat|oat)_", r"[A-Za-z0-9_-]{27,}"),
    "artifactory_key": ("AKCp", r"[A-Za-z0-9]{60,}"),
    "hashicorp_vault_token": (r"hv[sbr]\.", r"[A-Za-z0-9_-]{24,}"),
    "doppler_token": (r"dp\.(?:pt|st|ct|sa|scim|audit)\.", r"[A-Za-z0-9_.-]{40,}"),
    "pulumi_token": ("pul-", r"[a-f0-9]{40}\b"),
    "databricks_token": ("dapi", r"[a-f0-9]{32}(?:-\d)?\b"),
    "newrelic_key": ("NRAK-", r"[A-Z0-9]{27,}"),
    "grafana_token": ("gl(?:c|sa)_", r"[A-Za-z0-9+/_]{32,}=*"),
    "sentry_token": ("sntry[su]_", r"[A-Za-z0-9_=+/-]{40,}"),
    "linear_key": ("lin_(?:api|oauth)_", r"[A-Za-z0-9]{32,}"),
    "notion_token": ("ntn_", r"[A-Za-z0-9]{40,}"),
    "postman_key": ("PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}\b"),
    "figma_token": ("fig[dour]_", r"[A-Za-z0-9_-]{40,}"),
    "dropbox_token": (r"sl\.[A-Za-z0-9]", r"[A-Za-z0-9_-]{100,}"),
    "age_key": ("AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}"),
    "cloudflare_ca_key": (r"v1\.0-", r"[a-f0-9]{24}-[a-f0-9]{100,}"),
    "planetscale_token": ("pscale_(?:tkn|pw|oauth)_", r"[A-Za-z0-9_.=-]{32,}"),
    "supabase_token": ("sb[ps]_", r"[A-Za-z0-9_]{36,}"),
    "netlify_token": ("nf[pco]_", r"[A-Za-z0-9_]{36,}"),
    "heroku_key": ("HRKU-", r"[A-Za-z0-9_-]{36,}"),
    "fly_token": ("f(?:o1|m[12][ar]?)_", r"[A-Za-z0-9+/=_-]{40,}"),
    "tailscale_key": ("tskey-", r"[a-z]+-[A-Za-z0-9-]{20,}"),
    "json_web_token": ("eyJ", r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
}

_NAMES = (
    r"passw(?:or)?d|passwd|pwd|passphrase|credentials?"
    r"|(?:api|access|secret|auth|private|encryption|signing|account|shared)[_-]?(?:access[_-]?)?key"
    r"|secret|(?:auth|bearer|access|refresh|session|id)?[_-]?token"
)
_BETWEEN = r"""[\\"']*\s*(?:=>|:=|={1,3}|:)\s*[\\"']*"""
_VALUE = r"""[^\s"'\\,;<>{}()\[\]&|`]{8,}"""
_BEFORE = r"(?:[^\s\\:]{1,200}[:-](?:\d{1,6}[:-])?|[-+>|] ?)?"
"""What tools put before a line: the file that it is from and its number, the sign of a diff."""
_GAP = r"(?:\\+[nrt]|\s|\d{1,6}(?:\t|\\t|→|[:|]))*"
"""Between the lines of a key: ends of lines, also escaped ones, and numbers of lines."""


def _varied(value: bytes) -> bool:
    """Whether it is no word: letters and digits, and not a few over and over."""
    has_letters = any(65 <= each <= 90 or 97 <= each <= 122 for each in value)
    return has_letters and any(48 <= each <= 57 for each in value) and _bits(value) >= 2.5


def _bits(value: bytes) -> float:
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


_HARMLESS = compiled(
    rb"(?i)[$%*.~/]|https?://|\w+://"  # variables, paths, addresses
    rb"|(?:sha|md)\d+[:-]|msk_placeholder_|redacted"
    rb"|[a-z]{3,5}_[0-9a-f]{32}$"  # our ids
    rb"|\d{4}-\d\d-\d\d"
    rb"|[a-z]+(?:[_-][a-z]+)+[_-]?\d{0,2}$"  # names of things
    rb"|[a-z_]\w*(?:\.[a-z_]\w*)+$"  # and of what is in them
)
_NOT_ABOUT_ACCESS = compiled(rb"(?i)page|next|cursor|contin|sync|csrf|xsrf|public|max|count")
_NAME = compiled(rf"(?i)[\w.-]{{0,40}}(?:{_NAMES})".encode())


def looks_secret(value: bytes) -> bool:
    """Whether what a password or a token is set to is one, not a word or a variable."""
    return len(value) >= 8 and _varied(value) and _HARMLESS.match(value) is None


def names_secret(name: bytes) -> bool:
    """Whether what goes by this name is meant to be secret."""
    return _NAME.fullmatch(name) is not None and _NOT_ABOUT_ACCESS.search(name) is None


def is_login(name: bytes, value: bytes) -> bool:
    """Whether this is how programs keep a name and a password together: `auth`, in base64."""
    if name != b"auth" or len(value) < 8:
        return False
    try:
        return b":" in b64decode(value, validate=True)
    except ValueError:
        return False


def _is_private_key(encoded: bytes) -> bool:
    return b"PRIVATE KEY" in b64decode(encoded[:80])


def _is_no_placeholder(value: bytes) -> bool:
    return not value.startswith(b"msk_placeholder_")


def _is_password(value: bytes) -> bool:
    """Not a variable, a mask, or the word that examples have."""
    is_real = value[:1] not in b"$<{%*[" and value.strip(b"*x.") != b""
    return is_real and value.lower() not in (b"password", b"passwd", b"pass", b"pwd", b"secret")


def _written(
    kind: str, trigger: str, pattern: str, is_secret: Check = lambda _: True, group: int = 1
) -> Detector:
    return Detector(kind, trigger, compiled(pattern.encode()), is_secret, group)


DETECTORS: tuple[Detector, ...] = (
    _written(
        "private_key",
        "PRIVATE KEY",
        r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----"
        rf"{_GAP}(?:{_BEFORE}(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]*{_GAP})*"
        rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{16,}}{_GAP})+"
        rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{0,15}}{_GAP}{_BEFORE}-----END [A-Z0-9 ]+-----)?)",
    ),
    _written(
        "putty_key",
        "Private-Lines:",
        rf"Private-Lines: \d+{_GAP}((?:{_BEFORE}[A-Za-z0-9+/=]{{16,}}{_GAP})+[A-Za-z0-9+/=]*)",
    ),
    _written(
        "encoded_private_key",
        "LS0tLS1CRUdJTi",
        r"(LS0tLS1CRUdJTi[A-Za-z0-9+/=]{80,})",
        _is_private_key,
    ),
    *(
        _written(kind, trigger, rf"{_START}({trigger}{rest})")
        for kind, (trigger, rest) in _TOKENS.items()
    ),
    _written(
        "mainspring_key",
        "ms(?:k|wt)_",
        rf"{_START}(ms(?:k|wt)_[A-Za-z0-9_-]{{40,}}=*)",
        _is_no_placeholder,
    ),
    _written("openai_key", "sk-", rf"{_START}(sk-[A-Za-z0-9_-]{{20,}})", _varied),
    _written("mailchimp_key", r"-us\d", r"\b([a-f0-9]{32}-us\d{1,2})\b"),
    _written("airtable_token", r"\.[a-f0-9]{16}", r"\b(pat[A-Za-z0-9]{14}\.[a-f0-9]{64})\b"),
    _written("telegram_token", r"\d:AA", r"\b(\d{8,10}:AA[A-Za-z0-9_-]{32,})"),
    _written(
        "discord_token",
        r"\.[A-Za-z0-9_-]{6}\.",  # what comes before would make too many states
        rf"{_START}([MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}})",
    ),
    _written(
        "terraform_token", r"\.atlasv1\.", r"\b([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,})"
    ),
    _written("azure_client_secret", "8Q~", r"\b([A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,})"),
    _written("azure_account_key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/]{40,}=*)"),
    _written("azure_shared_key", "SharedAccessKey=", r"SharedAccessKey=([A-Za-z0-9+/]{40,}=*)"),
    _written("signed_url", "sig=", r"[?&;]sig=([A-Za-z0-9%+/]{40,}=*)"),
    _written("aws_signature", "X-Amz-Signature=", r"X-Amz-Signature=([a-f0-9]{64})\b"),
    _written(
        "url_password",
        r"://[^\s/:@]*:[^\s/@]+@",
        r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s:@/"'\\]*:([^\s@/"'\\\[\]]{3,})@""",
        _is_password,
    ),
    _written(
        "authorization",
        "(?i)authorization[\\\\\"']*\\s*[:=]",
        rf"(?i)authorization{_BETWEEN}(?:bearer|basic|token|apikey|digest)\s+([A-Za-z0-9+/=._~-]{{8,}})",
        _is_no_placeholder,
    ),
    _written(
        "bearer_token",
        r"(?i)bearer\s",
        r"(?i)\bbearer\s+([A-Za-z0-9+/=._~-]{16,})",
        looks_secret,
    ),
    _written(
        "npmrc_token", "_auth", r"_auth(?:Token)?\s*=\s*([A-Za-z0-9+/=_.-]{8,})", looks_secret
    ),
    _written(
        "registry_login", r'auth[\\"]+\s*:', r'\bauth[\\"]+\s*:\s*[\\"]+([A-Za-z0-9+/]{16,}=*)[\\"]'
    ),
    _written(
        "netrc_password",
        r"(?i)login\s+\S+\s+password",
        r"(?i)\blogin\s+\S+\s+password\s+([^\s\[\"'\\]{3,})",
        _is_password,
    ),
    _written(
        "login_option",
        r"\s(?:-u|--user)[ =]",
        r"""\s(?:-u|--user)[ =][\\"']*[^\s:"'\\\[]+:([^\s"'\\\[\]]{6,})""",
        _is_password,
    ),
    _written(
        "secret_option",
        rf"(?i)--[a-z-]*(?:{_NAMES})\s",
        rf"""(?i)--[a-z-]*(?:{_NAMES})\s+[\\"']*({_VALUE})""",
        looks_secret,
    ),
    _written(
        ASSIGNED,
        rf"(?i)(?:{_NAMES})[\\\"']*\s*(?:[:=])",
        rf"(?i)([\w.-]{{0,40}}(?:{_NAMES})){_BETWEEN}({_VALUE})",
        looks_secret,
        2,
    ),
)
