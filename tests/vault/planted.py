"""Made-up secrets of every kind we look for, put together here so that none stands in a file."""

from __future__ import annotations

import random
from base64 import b64encode, urlsafe_b64encode
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

HEX = "0123456789abcdef"
WORD = ascii_letters + digits


def planted(seed: int = 7) -> dict[str, tuple[str, str]]:
    """By kind: a text that has a secret in it, and the secret."""
    dice = random.Random(seed)

    def some(length: int, of: str = WORD) -> str:
        return "".join(dice.choice(of) for _ in range(length - 2)) + "a7"

    def part(length: int) -> str:
        return urlsafe_b64encode(dice.randbytes(length)).decode().rstrip("=")

    def b64(length: int) -> str:
        return b64encode(dice.randbytes(length)).decode()

    tokens = {
        "aws_access_key_id": "AKIA" + some(16, ascii_uppercase + digits).upper(),
        "aws_bedrock_key": "ABSK" + some(110),
        "google_api_key": "AIza" + some(35),
        "google_client_secret": "GOCSPX-" + some(28),
        "google_access_token": "ya29." + some(60),
        "google_refresh_token": "1//0" + some(60),
        "digitalocean_token": "dop_v1_" + some(64, HEX),
        "alibaba_access_key": "LTAI" + some(20),
        "tencent_secret_id": "AKID" + some(32),
        "github_token": "ghp_" + some(36),
        "github_oauth_token": "gho_" + some(36),
        "github_server_token": "ghs_" + some(36),
        "github_fine_grained_token": "github_pat_" + some(22) + "_" + some(59),
        "gitlab_token": "glpat-" + some(20),
        "gitlab_runner_token": "GR1348941" + some(20),
        "bitbucket_app_password": "ATBB" + some(32),
        "atlassian_token": "ATATT3" + some(180),
        "slack_token": "xoxb-" + some(12, digits) + "-" + some(24),
        "slack_app_token": "xapp-1-A"
        + some(10, ascii_uppercase).upper()
        + "-12345-"
        + some(64, HEX),
        "slack_webhook": "hooks.slack.com/services/T" + some(8) + "/B" + some(8) + "/" + some(24),
        "discord_webhook": "discord.com/api/webhooks/" + "1" * 18 + "/" + some(68),
        "discord_token": "M" + some(23) + "." + some(6) + "." + some(27),
        "stripe_key": "sk_live_" + some(24),
        "stripe_restricted_key": "rk_live_" + some(24),
        "webhook_secret": "whsec_" + some(32),
        "mainspring_key": "msk_" + some(43),
        "square_token": "sq0atp-" + some(22),
        "braintree_token": "access_token$production$" + some(16, HEX) + "$" + some(32, HEX),
        "shopify_token": "shpat_" + some(32, HEX),
        "twilio_key": "SK" + some(32, HEX),
        "sendgrid_key": "SG." + some(22) + "." + some(43),
        "mailgun_key": "key-" + some(32, HEX),
        "mailchimp_key": some(32, HEX) + "-us12",
        "anthropic_key": "sk-ant-api03-" + some(90),
        "openai_key": "sk-proj-" + some(48),
        "openrouter_key": "sk-or-v1-" + some(64, HEX),
        "huggingface_token": "hf_" + some(34),
        "replicate_token": "r8_" + some(37),
        "groq_key": "gsk_" + some(52),
        "xai_key": "xai-" + some(80),
        "perplexity_key": "pplx-" + some(48),
        "langsmith_key": "lsv2_pt_" + some(32, HEX) + "_" + some(10, HEX),
        "npm_token": "npm_" + some(36),
        "pypi_token": "pypi-" + some(160),
        "rubygems_key": "rubygems_" + some(48, HEX),
        "crates_token": "cio" + some(32),
        "nuget_key": "oy2" + some(43, ascii_lowercase + digits),
        "docker_token": "dckr_pat_" + some(27),
        "artifactory_key": "AKCp" + some(69),
        "terraform_token": some(14) + ".atlasv1." + some(67),
        "hashicorp_vault_token": "hvs." + some(90),
        "doppler_token": "dp.pt." + some(43),
        "pulumi_token": "pul-" + some(40, HEX),
        "databricks_token": "dapi" + some(32, HEX),
        "newrelic_key": "NRAK-" + some(27, ascii_uppercase + digits).upper(),
        "grafana_token": "glsa_" + some(32) + "_" + some(8, HEX),
        "sentry_token": "sntryu_" + some(64, HEX),
        "linear_key": "lin_api_" + some(40),
        "notion_token": "ntn_" + some(46),
        "airtable_token": "pat" + some(14) + "." + some(64, HEX),
        "postman_key": "PMAK-" + some(24, HEX) + "-" + some(34, HEX),
        "figma_token": "figd_" + some(40),
        "dropbox_token": "sl.B" + some(135),
        "telegram_token": "1234567890:AA" + some(33),
        "age_key": "AGE-SECRET-KEY-1" + some(58, ascii_uppercase + digits).upper(),
        "cloudflare_ca_key": "v1.0-" + some(24, HEX) + "-" + some(146, HEX),
        "planetscale_token": "pscale_tkn_" + some(43),
        "supabase_token": "sbp_" + some(40, HEX),
        "netlify_token": "nfp_" + some(40),
        "heroku_key": "HRKU-" + some(60),
        "fly_token": "fo1_" + some(43),
        "tailscale_key": "tskey-auth-" + some(18) + "-" + some(32),
        "azure_client_secret": some(3) + "8Q~" + some(34),
        "json_web_token": f"eyJ{part(24)}.eyJ{part(60)}.{part(32)}",
    }
    found = {kind: (f"the value is {token}, so use it", token) for kind, token in tokens.items()}
    rsa = "\n".join(b64(48) for _ in range(12))
    key, password = b64(30), some(14)
    login = b64encode(f"me:{password}".encode()).decode()
    found |= {
        "private_key": (
            f"-----BEGIN RSA PRIVATE KEY-----\n{rsa}\n-----END RSA PRIVATE KEY-----",
            rsa,
        ),
        "openssh_key": (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{rsa}\n", rsa.splitlines()[0]),
        "putty_key": (f"Private-Lines: 12\n{rsa}\nPrivate-MAC: 00", rsa.splitlines()[3]),
        "encoded_private_key": _twice(
            b64encode(f"-----BEGIN EC PRIVATE KEY-----\n{rsa}\n".encode()).decode()
        ),
        "azure_account_key": (f"AccountName=x;AccountKey={b64(64)};EndpointSuffix=y", ""),
        "azure_shared_key": (f"SharedAccessKeyName=x;SharedAccessKey={b64(32)}", ""),
        "signed_url": (f"https://x.test/blob?sv=2024&sig={some(43)}%3D&se=1", ""),
        "aws_signature": (f"https://x.test/o?X-Amz-Date=1&X-Amz-Signature={some(64, HEX)}", ""),
        "aws_secret_key": (f"aws_secret_access_key = {b64(30)}", ""),
        "postgres_url": (f"postgresql://app:{password}@db.test/app", password),
        "mongodb_url": (f"mongodb+srv://app:{password}@db.test/app", password),
        "git_url": (f"https://me:{password}@git.test/x.git", password),
        "basic_header": (f"Authorization: Basic {key}", key),
        "bearer_header": (f"curl -H 'Authorization: Bearer {key}' x.test", key),
        "bearer_alone": (f"send Bearer {some(40)} along", ""),
        "npmrc_token": (f"//r.test/:_authToken={some(30)}", ""),
        "registry_login": (f'{{"auths": {{"r.test": {{"auth": "{login}"}}}}}}', login),
        "netrc_password": (f"machine x.test login me password {password}", password),
        "login_option": (f"curl -u me:{password} https://x.test", password),
        "secret_option": (f"tool --password {password} --verbose", password),
        "password_in_yaml": (f"db:\n  password: {password}\n", password),
        "password_in_json": (f'{{"password": "{password}"}}', password),
        "api_key_in_env": (f"export SERVICE_API_KEY='{some(32)}'", ""),
        "client_secret": (f'client_secret="{some(40)}"', ""),
    }
    return {
        kind: (text, secret or max(text.replace("%", " ").split(), key=_digits).strip("'\""))
        for kind, (text, secret) in found.items()
    }


def _twice(secret: str) -> tuple[str, str]:
    return f"tls.key: {secret}", secret


def _digits(word: str) -> int:
    return len(word)


HARMLESS = {
    "a hash": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "a bare hash": "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    "a UUID": "request 123e4567-e89b-12d3-a456-426614174000 failed",
    "our ids": "sevt_01a1e179e9936fd2f1f03159efd5a7dd of sesn_01a1e179e9936fd2f1f03159efd5a7dd",
    "an id as a token": '{"token": "sevt_01a1e179e9936fd2f1f03159efd5a7dd"}',
    "an idempotency key": '"idempotency_key":"sesn_01a1e179e9936fd2f1f03159efd5a7dd/7"',
    "a lock file": 'integrity = "sha512-4BFMJlhvGGyGyFWyJYFLzyGZwPVDxGyHvV0ZCZQ=="',
    "usage": '{"usage":{"input_tokens":1234567890,"output_tokens":12345678}}',
    "a placeholder": "GITHUB_TOKEN=msk_placeholder_0123456789abcdef0123456789abcdef",
    "a variable": "password=$DB_PASSWORD1 token: ${{ secrets.TOKEN_1 }} --token $TOKEN1234",
    "code": "password = os.environ['P1'] or get_password(user1)\ntoken: str = make_token(3)",
    "an attribute": "api_key=settings.keys.first1, secret=self.config2.secret_value",
    "a page": '{"next_page_token":"CAEQAxoGCgQIARAB12345678"}',
    "prose": "The password must have 8 characters; a token: anything. Secret: nobody knows.",
    "a name": "secret: my-database-secret-2, token=service_account_token",
    "a path": "api_key=/run/secrets/key1 token: ./a1b2c3d4/e5f6",
    "a URL": "https://x.test:8443/a@b?c=d:e@f http://localhost:8000/v1",
    "a public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk9t1Yx me@host",
    "a certificate": "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n-----END CERTIFICATE-----",
    "kebab": "task-force risk-assessment-of-all-the-things sk-learn-and-other-long-names-here",
    "a mask": "postgresql://app:***@db.test/app password=******** token: xxxxxxxxxxxx",
    "a number": "password: 1234567890123 secret=0000000000",
    "a marker alone": 'BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"',
    "a call": "credentials = standard_b64encode(login).decode()",
    "an example": "https://user:password@host:80/path login me password $PASSWORD",
    "a date": "token: 2026-11-16T01:02:03Z",
}
