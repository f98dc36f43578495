"""Made-up secrets of every kind we look for, put together here so that none stands in a file."""

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
    found |= _passwords(dice) | _hashes(dice) | _disguised(tokens)
    found |= _key_lines([b64(48) for _ in range(8)])
    return {
        kind: (text, secret or max(text.replace("%", " ").split(), key=_digits).strip("'\""))
        for kind, (text, secret) in found.items()
    }


def _passwords(dice: random.Random) -> dict[str, tuple[str, str]]:
    """Without a digit, wherever programs and people write them."""
    word = "".join(dice.choice(ascii_lowercase) for _ in range(12))
    phrase = f"{word[:4]}-{word[4:8]}-{word[8:]}-staple"
    words = f"{word[:4]} {word[4:8]} {word[8:]} staple"
    login = b64encode(f"me:{word}".encode()).decode()
    texts = {
        "env": f"DB_PASSWORD={word}",
        "env_export": f"export PGPASSWORD={phrase}",
        "env_quoted": f"MYSQL_ROOT_PASSWORD='{phrase}'",
        "yaml": f"database:\n  user: me\n  password: {word}\n  port: 1",
        "yaml_quoted": f'password: "{phrase}"',
        "toml": f'[db]\npassword = "{word}"',
        "ini": f"[db]\npassword = {word}\n",
        "properties": f"spring.datasource.password={phrase}\n",
        "json": f'{{"user": "me", "password": "{word}"}}',
        "json_with_symbols": f'{{"password":"{word}!$"}}',
        "python": f'connect(user="me", password="{word}")',
        "python_dictionary": f"{{'passwd': '{phrase}', 'x': 1}}",
        "javascript": f'const config = {{ password: "{word}", port: 1 }};',
        "php": f"'password' => '{word}',",
        "snake": f'"password": "{word[:4]}_{word[4:8]}_{word[8:]}_staple"',
        "passphrase": f"passphrase: {words}",
        "passphrase_in_json": f'{{"password": "{words}"}}',
        "comment": f"password: {word}  # of the test database",
        "pair": f"host=x password={word} user=me",
        "connection_string": f"Server=x;User Id=sa;Password={word};Database=y",
        "query": f"user=me&password={word}&x=1",
        "short_name": f"DB_PASS={word}",
        "environ": f'os.environ["DB_PASSWORD"] = "{word}"',
        "sql": f"CREATE USER me IDENTIFIED BY '{word}';",
        "argument": f'user.set_password("{word}")',
        "kubernetes": f"- name: DB_PASSWORD\n  value: {word}\n",
        "xml_property": f'<property name="password" value="{word}"/>',
        "dockerfile": f"ENV DB_PASSWORD {word}",
        "prose_for": f"The password for root is {word}",
        "terraform": f'  master_password = "{phrase}"',
        "secret": f'CLIENT_SECRET="{word}"',
        "secret_in_env": f"JWT_SECRET={word}\n",
        "api_key": f"SERVICE_API_KEY={word}{word}\n",
        "numbers": f"password: {dice.randrange(10**8, 10**9)}\n",
        "mysql": f"mysql -h db.test -u root -p{word} shop",
        "mysqldump": f"mysqldump -uroot -p'{word}' shop > dump.sql",
        "mysql_long": f"mysql --user=root --password={word} shop",
        "sshpass": f"sshpass -p {word} ssh me@x.test",
        "sshpass_attached": f"sshpass -p'{word}' ssh me@x.test",
        "curl": f"curl -s -u me:{word} https://x.test",
        "curl_attached": f"curl -ume:{word} https://x.test",
        "redis": f"redis-cli -h x.test -a {word} ping",
        "docker_login": f"docker login -u me -p {word} r.test",
        "openssl": f"openssl rsa -in k.pem -passin pass:{word}",
        "zip": f"zip -r -P {word} out.zip folder",
        "sudo": f"echo {word} | sudo -S true",
        "option": f"tool --db-password {word} --verbose",
        "cookie": f"Cookie: session={word}{word}; theme=dark",
        "set_cookie": f"Set-Cookie: sid={word}{word}; Path=/; HttpOnly",
        "cookie_in_json": f'{{"headers": {{"Cookie": "sid={word}{word}"}}}}',
        "cookie_option": f"curl -b 'sid={word}{word}' https://x.test",
        "basic": f"Authorization: Basic {login}",
        "bearer": f"Authorization: Bearer {word}{word}",
        "digest": f'Authorization: Digest username="me", realm="x", response="{word}{word}"',
        "url": f"postgres://me:{word}@db.test/x",
        "xml": f"<server><username>me</username><password>{word}</password></server>",
        "xml_attributes": f'<db:Password type="plain">{phrase}</db:Password>',
        "prose": f"By the way, the password is {word}.",
        "prose_quoted": f"The root password is `{phrase}`, do not tell.",
        "prose_was_set": f"I have set the password to {word} for now",
        "netrc": f"machine x.test\n  login me\n  password {word}\n",
        "pgpass": f"db.test:5432:shop:me:{word}\n",
        "docker_config": f'{{"auths":{{"r.test":{{"auth":"{login}"}}}}}}',
        "kubeconfig": f"users:\n- name: me\n  user:\n    password: {word}\n    username: me\n",
    }
    whole = {"basic": login, "docker_config": login}
    known = (words, phrase, phrase.replace("-", "_"), word + word, word)
    found = {
        f"password_{name}": (text, whole.get(name) or next(w for w in known if w in text))
        for name, text in texts.items()
        if name != "numbers"
    }
    return {**found, "password_numbers": (texts["numbers"], texts["numbers"].split()[-1])}


def _hashes(dice: random.Random) -> dict[str, tuple[str, str]]:
    def some(length: int) -> str:
        return "".join(dice.choice(WORD) for _ in range(length))

    hashes = {
        "bcrypt": f"$2b$12${some(53)}",
        "argon2": f"$argon2id$v=19$m=65536,t=3,p=4${some(22)}${some(43)}",
        "scrypt": f"$scrypt$ln=16,r=8,p=1${some(22)}${some(43)}",
        "sha512crypt": f"$6$rounds=5000${some(16)}${some(86)}",
        "md5crypt": f"$1${some(8)}${some(22)}",
        "yescrypt": f"$y$j9T${some(22)}${some(43)}",
        "pbkdf2": f"pbkdf2_sha256$600000${some(22)}${some(43)}=",
        "ssha": f"{{SSHA}}{some(32)}",
    }
    return {f"hash_{name}": (f"me:{hash_}:19000:0", hash_) for name, hash_ in hashes.items()}


def _disguised(tokens: dict[str, str]) -> dict[str, tuple[str, str]]:
    token, long = tokens["github_token"], tokens["anthropic_key"]
    padding = "x " * 15
    url = b64encode(f"postgres://me:{long[20:40]}@db/x".encode()).decode()
    encoded = b64encode(f"token={token}".encode()).decode()
    lines = b64encode(f"{padding}\nexport TOKEN={token}\n{padding}".encode()).decode()
    return {
        "token_over_two_lines": (f"use {token[:20]}\n{token[20:]} now", token[20:]),
        "token_wrapped_at_76": (f"{'x' * 39} {long[:36]}\n{long[36:]}\n", long[36:]),
        "token_continued": (f"curl -H x: {long[:40]}\\\n{long[40:]} y", long[40:]),
        "token_over_escaped_lines": (f'{{"a": "{token[:20]}\\n{token[20:]}"}}', token[20:]),
        "token_in_base64": (f"data: {b64encode(token.encode()).decode()}", _middle(token)),
        "assignment_in_base64": (f"config.env: {encoded}\n", encoded),
        "base64_in_lines": (
            "\n".join(lines[at : at + 76] for at in range(0, len(lines), 76)),
            lines[:76],
        ),
        "kubernetes_secret": (f"data:\n  url: {url}", url),
    }


def _middle(token: str) -> str:
    return b64encode(token.encode()).decode()[4:-4]


def _key_lines(lines: list[str]) -> dict[str, tuple[str, str]]:
    """A private key as tools show it, with and without what says that it is one."""
    body = [f"MIIEpAIBAAKCAQEA{lines[0][16:]}", *lines[1:], "AbCd12=="]
    whole = ["-----BEGIN RSA PRIVATE KEY-----", *body, "-----END RSA PRIVATE KEY-----"]
    secret = "\n".join(body[1:-1])
    numbered = list(enumerate(whole, 1))
    openssh = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"
    shown = {
        "blame": [f"^3f2a91c (J Doe 2026-01-02 03:04:05 +0000 {n}) {line}" for n, line in numbered],
        "blame_short": [f"3f2a91cd key.pem (Jo 2026-01-02 {n}) {line}" for n, line in numbered],
        "tail": whole[1:],
        "middle": body[2:7],
        "cat_a": [f"{line}$" for line in whole],
        "cat_a_tail": [f"{line}^M$" for line in whole[1:]],
        "cat_n": [f"{at:>6}\t{line}" for at, line in enumerate(whole, 1)],
        "grep": [f"id_rsa:{at}:{line}" for at, line in enumerate(whole[1:], 1)],
        "diff": [f"+{line}" for line in whole],
        "diff_tail": [f"-{line}" for line in whole[1:]],
        "indented": [f"    {line}" for line in whole[1:]],
        "quoted": [f"> {line}" for line in whole[1:]],
        "logged": [f"2026-01-02T03:04:05.123Z {line}" for line in whole[1:]],
        "middle_numbered": [f"{at}: {line}" for at, line in enumerate(body[1:7])],
        "openssh_tail": [openssh, *body[1:]],
    }  # fmt: skip
    return {
        f"key_{name}": (
            "\n".join(text) + "\n",
            "\n".join(body[3:6]) if "middle" in name else secret,
        )
        for name, text in shown.items()
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
    "a number": "token: 1234567890123 secret=0000000000 password_length: 1234567",
    "types": "password: str\npassword: string;\ntoken: AccessToken | None = None\npwd: SecretStr,",
    "code that passes it on": "login(user, password=password, token=self.token)\npwd = getpass()",
    "values of examples": 'password="test" api_key: "your-api-key" secret = "changeme" pwd: "xxx"',
    "prose about passwords": "the password is incorrect; your password was changed, so the "
    "password is required and a passphrase is optional. The password is stored hashed.",
    "prose about passing": "the arguments to pass to parseconfigure, a final pass to normalize; the"
    " password to decrypt files; username and password to include in the request",
    "attributes": "user.password = form.password\nself._password = handler.password\n"
    "assert found.password == password_1\nif pwd != old_password2:\n",
    "placeholders that a refusal proposes": "password='changeme', token=\"test-password\"",
    "options in a help text": "--password TEXT  The password\n-p, --password PASSWORD",
    "sums": "\n".join(
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" for _ in "1234"
    ),
    "users and groups": "docker run -u 1000:1000 -p 8080:8080 x; mkdir -p folder; ssh -p 2222 x",
    "XML": "<password/> <token type='x'></token> <password>${db.password}</password>",
    "cookies of examples": "Cookie: name=value\nSet-Cookie: session=<token>; Path=/",
    "base64 of text": "aGVsbG8gd29ybGQsIHRoaXMgaXMgcGxhaW4gdGV4dA==",
    "a marker alone": 'BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"',
    "a call": "credentials = standard_b64encode(login).decode()",
    "an example": "https://user:password@host:80/path login me password $PASSWORD",
    "an authorization of examples": "Authorization: Bearer <token> 'Authorization': 'Bearer ' + x",
    "a date": "token: 2026-11-16T01:02:03Z",
}
