"""Tokens and private keys, recognised by their prefix or their characters. Patterns are for RE2:
linear in any text. A pattern ends where its characters end or at a word boundary, so that
redaction leaves no rest of a secret."""

from __future__ import annotations

from collections.abc import Mapping

import re2

from mainspring.capabilities.vault.assignments import entropy_bits, is_varied
from mainspring.capabilities.vault.secret_detector import (
    Detector,
    compile_pattern,
    decode_base64,
    value_detector,
)

START = r"(?:\b|\\[nrt]|\[[0-9;]*m)"
"""The start of a token, also after an escaped line break and after a color code."""

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
    "together_key": ("tgp_v1_", r"[A-Za-z0-9_-]{40,}"),
    "tavily_key": ("tvly-", r"[A-Za-z0-9-]{32,}"),
    "pinecone_key": ("pcsk_", r"[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}"),
    "e2b_key": ("e2b_", r"[a-f0-9]{40}\b"),
    "cerebras_key": ("csk-", r"[a-z0-9]{40,}"),
    "huggingface_organization_token": ("api_org_", r"[A-Za-z0-9]{30,}"),
    "fireworks_key": ("fw_", r"[A-Za-z0-9]{22,}"),
    "elevenlabs_key": ("sk_", r"[a-f0-9]{40,64}\b"),
    "voyage_key": ("pa-", r"[A-Za-z0-9_-]{43}\b"),
    "jina_key": ("jina_", r"[A-Za-z0-9_-]{50,}"),
    "nvidia_key": ("nvapi-", r"[A-Za-z0-9_-]{50,}"),
    "firecrawl_key": ("fc-", r"[a-f0-9]{32}\b"),
    "brave_search_key": ("BSA", r"[A-Za-z0-9_-]{27,29}\b"),
    "wandb_key": ("wandb_v1_", r"[A-Za-z0-9_-]{40,}"),
    "runpod_key": ("rpa_", r"[A-Za-z0-9]{40,}"),
    "cursor_key": ("key_", r"[a-f0-9]{64}\b"),
    "google_bound_key": (r"AQ\.Ab8", r"[A-Za-z0-9_-]{40,}"),
    "gitlab_client_token": ("gl(?:ffct|wt)-", r"[A-Za-z0-9_-]{20,}"),
    "bitbucket_token": ("ATCTT3", r"[A-Za-z0-9_=-]{60,}"),
    "trello_token": ("ATTA", r"[a-f0-9]{64}\b"),
    "slack_workflow_token": ("xwfp-", r"[A-Za-z0-9-]{10,}"),
    "slack_cookie": ("xoxd-", r"[A-Za-z0-9%/+_-]{20,}"),
    "teams_webhook": (
        r"[\w-]{1,60}\.webhook\.office\.com/webhookb2/",
        r"[0-9a-f@/A-Za-z-]{60,}",
    ),
    "mandrill_key": ("md-", r"[A-Za-z0-9_-]{22}\b"),
    "resend_key": ("re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    "brevo_key": ("x(?:key|smtp)sib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}\b"),
    "square_access_token": ("EAAA", r"[A-Za-z0-9_-]{60}\b"),
    "facebook_token": ("EAA[A-Z]", r"[A-Za-z0-9]{80,}"),
    "instagram_token": ("IG(?:QV|AA)", r"[A-Za-z0-9_-]{80,}"),
    "shopify_partner_token": ("(?:prtapi|shpua)_", r"[a-fA-F0-9]{32}\b"),
    "plaid_token": (
        "access-(?:production|sandbox|development)-",
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    ),
    "flutterwave_key": ("FLWSECK(?:_TEST)?-", r"[a-f0-9]{32}-X"),
    "gocardless_token": ("live_", r"[A-Za-z0-9_-]{40}\b"),
    "adyen_key": ("AQE[a-z]{5}", r"[A-Za-z0-9+/]{45,}"),
    "infisical_token": (r"st\.[a-f0-9]{8}", r"[a-f0-9]{16}\.[a-f0-9]{32}\.[a-f0-9]{32}\b"),
    "onepassword_token": ("ops_eyJ", r"[A-Za-z0-9_-]{100,}"),
    "onepassword_key": ("A3-[A-Z0-9]{6}-", r"[A-Z0-9]{6}(?:-[A-Z0-9]{5}){4}\b"),
    "supabase_key": ("sb_secret_", r"[A-Za-z0-9_-]{30,}"),
    "vercel_token": ("vc[pkair]_", r"[A-Za-z0-9]{40,}"),
    "vercel_blob_token": ("vercel_blob_rw_", r"[A-Za-z0-9]{16}_[A-Za-z0-9]{30}\b"),
    "neon_key": ("napi_", r"[a-z0-9]{60,}"),
    "neon_password": ("npg_", r"[A-Za-z0-9]{12}\b"),
    "render_key": ("rnd_", r"[A-Za-z0-9]{28,}"),
    "cloudflare_token": ("cf(?:u|a|k)t_", r"[A-Za-z0-9]{40,}"),
    "yandex_key": ("AQVN", r"[A-Za-z0-9_-]{35,}"),
    "yandex_token": (r"(?:y[0-6]_|t1\.[A-Z0-9a-z]{3})", r"[A-Za-z0-9_.=-]{50,}"),
    "aws_session_token": ("IQoJb3JpZ2lu", r"[A-Za-z0-9+/=]{100,}"),
    "databricks_client_secret": ("dose", r"[a-f0-9]{32}\b"),
    "mongodb_service_secret": ("mdb_sa_sk_", r"[A-Za-z0-9_-]{40,}"),
    "convex_key": (r"(?:prod|dev|preview):[a-z]+-[a-z]+-\d+\|", r"[A-Za-z0-9+/=]{40,}"),
    "clickhouse_key": ("4b1d", r"[A-Za-z0-9]{38}\b"),
    "newrelic_insert_key": ("NR(?:II|JS|SP)-", r"[A-Za-z0-9_-]{19,}"),
    "newrelic_licence": ("eu01xx", r"[a-f0-9]{30}FFFFNRAL"),
    "honeycomb_key": ("hc[abx]ik_", r"[A-Za-z0-9]{50,}"),
    "axiom_token": ("xa(?:at|pt)-|xapt-", r"[0-9a-f]{8}-[0-9a-f-]{27}\b"),
    "posthog_key": ("phx_", r"[A-Za-z0-9]{40,}"),
    "segment_token": ("sgp_", r"(?:[A-Za-z0-9]{64}|[a-f0-9]{16}_[a-f0-9]{40})\b"),
    "launchdarkly_key": (
        "(?:api|sdk)-",
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    ),
    "asana_token": (r"2/\d{10}", r"\d*/\d{10,}:[a-f0-9]{32}\b"),
    "clickup_token": ("pk_", r"\d{6,9}_[A-Z0-9]{32}\b"),
    "hubspot_token": (
        r"pat-[a-z]{2}\d-",
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    ),
    "salesforce_session": ("00D[A-Za-z0-9]{12}!", r"[A-Za-z0-9_.]{60,}"),
    "intercom_token": ("dG9rO", r"[A-Za-z0-9+/]{50,}=*"),
    "jfrog_reference_token": ("cmVmdGtuOjAxOj", r"[A-Za-z0-9]{40,}"),
    "clojars_token": ("CLOJARS_", r"[a-f0-9]{60}\b"),
    "circleci_token": ("CCI(?:PAT|PRJ)_", r"[A-Za-z0-9]{16,}_[a-f0-9]{40}\b"),
    "buildkite_token": ("bk(?:ua|aj|ct|pt|at)_", r"[A-Za-z0-9_-]{40,}"),
    "sonarqube_token": ("sq[puab]_", r"[a-f0-9]{40}\b"),
    "mapbox_secret_token": (r"sk\.eyJ", r"[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,}"),
    "typeform_token": ("tfp_", r"[A-Za-z0-9_-]{40,}"),
    "contentful_token": ("CFPAT-", r"[A-Za-z0-9_-]{43}"),
    "prefect_key": ("pn[ub]_", r"[A-Za-z0-9]{36}\b"),
    "dynatrace_token": (r"dt0[a-z]\d\d\.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}\b"),
    "duffel_token": ("duffel_(?:live|test)_", r"[A-Za-z0-9_-]{43}"),
    "easypost_key": ("EZ[AT]K", r"[A-Za-z0-9]{54}\b"),
    "shippo_token": ("shippo_(?:live|test)_", r"[a-f0-9]{40}\b"),
    "readme_key": ("rdme_", r"[a-z0-9]{70}\b"),
    "scalingo_token": ("tk-us-", r"[A-Za-z0-9_-]{48}"),
    "openshift_token": ("sha256~", r"[A-Za-z0-9_-]{43}"),
    "harness_token": (r"[ps]at\.", r"[A-Za-z0-9_-]{22}\.[a-f0-9]{24}\.[A-Za-z0-9]{20}\b"),
    "frameio_token": ("fio-u-", r"[A-Za-z0-9_=-]{60,}"),
    "secret_key": ("secret-(?:live-|test-)?", r"[A-Za-z0-9_=-]{36,}"),
    "secret_token": ("secret_", r"[A-Za-z0-9]{43}\b"),
    "paseto": (r"v[1-4]\.(?:local|public)\.", r"[A-Za-z0-9_-]{40,}(?:\.[A-Za-z0-9_-]+)?"),
    "json_web_encryption": (
        "eyJ",
        r"[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{22}\b",
    ),
    "twitch_token": ("oauth:", r"[a-z0-9]{30}\b"),
    "extended_private_key": ("[xyz]prv", r"[1-9A-HJ-NP-Za-km-z]{100,}"),
}


_LIKE_BASE64 = frozenset(("adyen_key", "databricks_token", "facebook_token", "instagram_token"))
"""With `isalnum` triggers: tokens that begin as any base64 may in its middle."""


def _stands_alone(match: re2.Match[bytes], text: bytes) -> bool:
    """Whether a token is not the middle of base64, of which a picture of zeros is the worst: it
    contains every beginning. A slash alone may end the path before it."""
    start, stop = match.span(1)
    before = text[max(0, start - 12) : start]
    if before.endswith(b"+") or (before.endswith(b"/") and before[:-1].isalnum()):
        return False
    value = text[start : min(stop, start + 512)]
    least = 4.0 if len(set(value)) > _HEX_CHARACTERS else 3.3
    return stop - start < _LONG_TOKEN or entropy_bits(value) >= least


_LONG_TOKEN = 50
"""Bytes from which on random characters have at least 4 bits of entropy each, and hexadecimal
digits 3.3."""
_HEX_CHARACTERS = 22
"""As many different ones as a token in hexadecimal digits has, with its beginning."""


def _always(_: re2.Match[bytes], __: bytes) -> bool:
    return True


def _is_no_placeholder(value: bytes) -> bool:
    return not value.startswith(b"msk_placeholder_")


NUMBER_KEY = value_detector(
    "solana_key", r"\[\s*\d{1,3}\s*,", r"(\[(?:\s*\d{1,3}\s*,){63}\s*\d{1,3}\s*\])"
)
"""A key pair as 64 numbers."""
LATE_JSON_KEY = value_detector(
    "json_web_key",
    r"kty\\*\"",
    r"\b(?:d|k)\\*\"\s*:\s*\\*\"([A-Za-z0-9_-]{20,})\\*\"[^{}]*?\bkty\\*\"",
)
"""Members in another order."""
JSON_KEY = value_detector(
    "json_web_key",
    r"kty\\*\"",
    r"\bkty\\*\"[^{}]*?\\*\"(?:d|k)\\*\"\s*:\s*\\*\"([A-Za-z0-9_-]{20,})",
)
TOKENS: tuple[Detector, ...] = (
    *(
        Detector(
            kind,
            trigger,
            compile_pattern(rf"{START}({trigger}{rest})".encode()),
            _stands_alone if trigger.isalnum() or kind in _LIKE_BASE64 else _always,
        )
        for kind, (trigger, rest) in _TOKENS.items()
    ),
    value_detector(
        "mainspring_key",
        "ms(?:k|wt)_",
        rf"{START}(ms(?:k|wt)_[A-Za-z0-9_-]{{40,}}=*)",
        _is_no_placeholder,
    ),
    value_detector("openai_key", "sk-", rf"{START}(sk-[A-Za-z0-9_-]{{20,}})", is_varied),
    value_detector(
        "mailgun_private_key",
        r"[a-f0-9]-[a-f0-9]{8}-[a-f0-9]{8}",
        r"\b([a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8})\b",
    ),
    value_detector("azure_devops_token", "AZDO", r"\b([A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})\b"),
    value_detector(
        "bitcoin_key",
        "[5KL][1-9A-HJ-NP-Za-km-z]{50}",
        r"\b([5KL][1-9A-HJ-NP-Za-km-z]{50,51})\b",
        is_varied,
    ),
    value_detector(
        "totp_secret", "otpauth://", r"(?i)otpauth://[^\s\"']{0,200}secret=([A-Z2-7]{16,}=*)"
    ),
    NUMBER_KEY,
    JSON_KEY,
    LATE_JSON_KEY,
    value_detector(
        "kubeconfig_key",
        "client-key-data",
        r"client-key-data[\\\"]*\s*:\s*[\\\"]*([A-Za-z0-9+/]{40,}=*)",
    ),
    value_detector(
        "seed_phrase",
        r"(?i)(?:mnemonic|(?:seed|recovery|wallet|secret)[ _-]?(?:phrase|words?))",
        r"(?i)(?:mnemonic|(?:seed|recovery|wallet|secret)[ _-]?(?:phrase|words?))[\\\"']*"
        r"\s*(?:[:=]|is|are)\s*[\\\"']*((?:[a-z]{3,8}[ ,]+){11,23}[a-z]{3,8})\b",
    ),
    value_detector("mailchimp_key", r"-us\d", r"\b([a-f0-9]{32}-us\d{1,2})\b"),
    value_detector("airtable_token", r"\.[a-f0-9]{16}", r"\b(pat[A-Za-z0-9]{14}\.[a-f0-9]{64})\b"),
    value_detector("telegram_token", r"\d:AA", r"\b(\d{8,10}:AA[A-Za-z0-9_-]{32,})"),
    value_detector(
        "discord_token",
        r"\.[A-Za-z0-9_-]{6}\.",  # a prefix would make too many states
        rf"{START}([MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}})",
    ),
    value_detector(
        "terraform_token", r"\.atlasv1\.", r"\b([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,})"
    ),
    value_detector("azure_client_secret", "8Q~", r"\b([A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,})"),
    value_detector("azure_account_key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/]{40,}=*)"),
    value_detector(
        "azure_shared_key", "SharedAccessKey=", r"SharedAccessKey=([A-Za-z0-9+/]{40,}=*)"
    ),
    value_detector("signed_url", "sig=", r"[?&;]sig=([A-Za-z0-9%+/]{40,}=*)"),
    value_detector("aws_signature", "Signature=", r"(?:X-Amz-|\b)Signature=([a-f0-9]{64})\b"),
    value_detector(
        "password_hash",
        r"\$(?:2[abxy]?|[1567y]|apr1|sha1|argon2[id]*|scrypt|pbkdf2[\w-]*|bcrypt[\w-]*)\$"
        r"|\{S?SHA\d*\}|pbkdf2_sha|scrypt:\d",
        r"(\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}"
        r"|\$(?:[1567y]|apr1|sha1)\$(?:[\w=,.]{1,40}\$)?[./A-Za-z0-9]{1,32}\$[./A-Za-z0-9]{20,}"
        r"|\$(?:argon2(?:id|i|d)|scrypt|pbkdf2[\w-]*|bcrypt[\w-]*)\$[\w=,.$+/-]{20,}"
        r"|\{S?SHA\d*\}[A-Za-z0-9+/]{20,}=*"
        r"|pbkdf2_sha\d+\$\d+\$[^\s$]{1,64}\$[A-Za-z0-9+/]{20,}=*"
        r"|scrypt:\d+:\d+:\d+\$[A-Za-z0-9./]{8,}\$[a-f0-9]{32,})",
    ),
)
BEGINNINGS = "|".join(trigger for trigger, _ in _TOKENS.values()) + "|sk-"
"""The prefixes of tokens."""


_BEFORE = (
    r"(?:[^\s\\:]{1,200}[:-](?:\d{1,6}[:-])? ?|[-+>|#*] ?"
    r"|\^?[0-9a-f]{7,40} [^\n\\()]{0,80}\([^\n\\()]{1,100}\d\) "
    r"|\d{4}-\d\d-\d\d[T ][\d:.,+Z]+ )?"
)
"""What tools print before a line: its file and number, the sign of a diff or a quotation, the
commit and its author, a time."""
_GAP = (
    r"(?:(?:\^M)?(?:\$|\\\$)?(?:\\+[nrt]|\s)"
    r"(?:[ \t]*\d{1,6}(?:\t|\\t|→|\^I|[:|]))?)"
)
"""The text between the lines of a key: line breaks, also escaped or visible ones, and line
numbers."""
_GAPS = rf"{_GAP}+"
_BEGINNING = (
    r"(?:MII[A-Za-z0-9+/]{3}IBA[AD]|MI[GH][A-Za-z0-9+/]AgE[AB]|M[C-H][A-Za-z0-9+/]CAQ[AE]"
    r"|MI[IGH][A-Za-z0-9+/]{2,6}BgkqhkiG9w0BB[QM]|b3BlbnNzaC1rZXktdjE)"
)
"""The beginning of the encoded content of a private key, in all formats, encrypted or not."""
_BASE64 = r"[A-Za-z0-9+/]"
_LINE = rf"{_BASE64}{{64}}(?:{_BASE64}{{6}})?"
_LINE_START = r"\\[nrt]|[^A-Za-z0-9+/]"
_NEXT = r"(?:\^M)?[^A-Za-z0-9+/\n\\]*(?:\r?\n|\\+[rn])"
_ANY_BEFORE = r"(?:[^\n\\]*[^A-Za-z0-9+/\n\\])?"
_PUBLIC = compile_pattern(
    rb"BEGIN [A-Z0-9 ]*(?:CERTIFICATE|PUBLIC|SIGNATURE|MESSAGE|REQUEST|CRL|PARAMETERS|PKCS7|CMS)"
)
_HEXADECIMAL = compile_pattern(rb"[0-9a-fA-F\s]+")
_LOOK_BEHIND = 400  # bytes before the lines of a key, which may say that it is public


def _is_private(encoded: bytes) -> bool:
    return b"PRIVATE KEY" in decode_base64(encoded[:80])


def _is_private_body(match: re2.Match[bytes], text: bytes) -> bool:
    """Whether lines look like those of a key, and nothing before them says that it is public."""
    start, stop = match.span()
    before = text[max(0, start - _LOOK_BEHIND) : start]
    if _PUBLIC.search(before[before.rfind(b"-----END") + 1 :]) is not None:
        return False
    return _HEXADECIMAL.fullmatch(text[start + 2 : min(stop, start + 64)]) is None


def _key_detector(kind: str, trigger: str, before: str, pattern: str) -> Detector:
    """A detector of something that can be long."""
    whole, prefix = (compile_pattern(item.encode()) for item in (before + pattern, before))
    return Detector(kind, trigger, whole, group=0, before=prefix if before else None)


PRIVATE_KEYS: tuple[Detector, ...] = (
    _key_detector(
        "private_key",
        "PRIVATE KEY",
        "",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----"
        rf"(?:{_GAPS}{_BEFORE}(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]*)*"
        rf"(?:(?:{_GAPS}{_BEFORE}|[ ,]*)[A-Za-z0-9+/=]{{16,}})+"
        rf"(?:{_GAPS}{_BEFORE}[A-Za-z0-9+/=]{{1,15}})?"
        rf"(?:{_GAPS}{_BEFORE}-----END [A-Z0-9 ]+-----)?",
    ),
    _key_detector(
        "private_key",
        _BEGINNING,
        r"(?:\\n|\b)",
        rf"{_BEGINNING}[A-Za-z0-9+/=]{{20,}}"
        rf"(?:{_GAPS}{_BEFORE}[A-Za-z0-9+/=]{{40,}})*"
        rf"(?:{_GAPS}{_BEFORE}[A-Za-z0-9+/]{{1,63}}={{1,2}})?"
        rf"(?:{_GAPS}{_BEFORE}-----END [A-Z0-9 ]+-----)?",
    ),
    Detector(
        "private_key_lines",
        _LINE + _NEXT,
        compile_pattern(
            (
                rf"(?:^|{_LINE_START}){_LINE}(?:{_NEXT}{_ANY_BEFORE}{_LINE}){{2,}}"
                rf"(?:{_NEXT}{_ANY_BEFORE}(?:{_BASE64}{{20,63}}={{0,2}}|{_BASE64}{{1,63}}={{1,2}}))?"
            ).encode()
        ),
        _is_private_body,
        group=0,
        before=compile_pattern(_LINE_START.encode()),
    ),
    _key_detector(
        "putty_key",
        "Private-Lines:",
        rf"Private-Lines: \d+{_GAPS}",
        rf"{_BEFORE}[A-Za-z0-9+/=]{{16,}}"
        rf"(?:{_GAPS}{_BEFORE}[A-Za-z0-9+/=]{{16,}})*(?:{_GAPS}[A-Za-z0-9+/=]+)?",
    ),
    value_detector(
        "encoded_private_key", "LS0tLS1CRUdJTi", r"(LS0tLS1CRUdJTi[A-Za-z0-9+/=]{80,})", _is_private
    ),
)
