"""Secrets as vendors issue them this year, put together here so that none stands in a file.

A shape is a text with `<alphabet:length>` for random characters. What is between `«` and `»` is the
secret; a shape without them is a token, which is looked for as a whole.
"""

import random
import re
import uuid
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

_ALPHABETS = {
    "w": ascii_letters + digits,
    "x": "0123456789abcdef",
    "X": "0123456789ABCDEF",
    "u": ascii_uppercase + digits,
    "l": ascii_lowercase + digits,
    "d": digits,
    "a": ascii_lowercase,
    "b": ascii_letters + digits + "+/",
    "s": ascii_letters + digits + "_-",
    "p": ascii_letters + digits + "!#%*+~",
    "k": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
_SLOT = re.compile(r"<(\w):(\d+)>")

TOKENS = """
openai_project          sk-proj-<s:74>T3BlbkFJ<s:74>
openai_service          sk-svcacct-<s:58>T3BlbkFJ<s:58>
openai_admin            sk-admin-<s:58>T3BlbkFJ<s:58>
anthropic               sk-ant-api03-<s:93>AA
anthropic_admin         sk-ant-admin01-<s:93>AA
anthropic_oauth         sk-ant-oat01-<s:93>AA
together                tgp_v1_<s:43>
tavily                  tvly-<w:32>
tavily_dev              tvly-dev-<w:32>
pinecone                pcsk_<w:5>_<w:63>
e2b                     e2b_<x:40>
cerebras                csk-<l:48>
groq                    gsk_<w:52>
xai                     xai-<w:80>
perplexity              pplx-<w:48>
huggingface             hf_<w:34>
huggingface_org         api_org_<w:34>
replicate               r8_<w:37>
fireworks               fw_<w:22>
deepseek                sk-<x:32>
elevenlabs              sk_<x:48>
voyage                  pa-<s:43>
jina                    jina_<x:32><s:28>
nvidia                  nvapi-<s:64>
langfuse                sk-lf-<g:1>
langsmith_personal      lsv2_pt_<x:32>_<x:10>
langsmith_service       lsv2_sk_<x:32>_<x:10>
firecrawl               fc-<x:32>
brave_search            BSA<s:28>
wandb                   wandb_v1_<s:77>
runpod                  rpa_<u:36><l:10>
openrouter              sk-or-v1-<x:64>
cursor                  key_<x:64>
google_api              AIza<s:35>
google_new_api          AQ.Ab8<s:47>
google_client_secret    GOCSPX-<s:28>
google_access           ya29.<s:120>
google_refresh          1//0<s:70>
github_classic          ghp_<w:36>
github_oauth            gho_<w:36>
github_user             ghu_<w:36>
github_server           ghs_<w:36>
github_refresh          ghr_<w:76>
github_fine             github_pat_<w:22>_<w:59>
gitlab_personal         glpat-<s:20>
gitlab_routable         glpat-<s:27>.01.<l:9>
gitlab_deploy           gldt-<s:20>
gitlab_runner           glrt-<s:20>
gitlab_runner_routable  glrt-t1_<s:27>.01.<l:9>
gitlab_job              glcbt-<w:2>_<s:20>
gitlab_trigger          glptt-<x:40>
gitlab_feed             glft-<s:20>
gitlab_mail             glimt-<s:25>
gitlab_agent            glagent-<s:50>
gitlab_oauth            gloas-<x:64>
gitlab_scim             glsoat-<s:20>
gitlab_feature_flag     glffct-<s:20>
gitlab_workspace        glwt-<s:40>
gitlab_old_runner       GR1348941<s:20>
bitbucket_app           ATBB<w:32>
bitbucket_access        ATCTT3xFfGN0<s:160>=<X:8>
atlassian               ATATT3xFfGF0<s:180>=<X:8>
trello                  ATTA<x:64>
slack_bot               xoxb-<d:12>-<d:12>-<w:24>
slack_user              xoxp-<d:12>-<d:12>-<d:12>-<x:32>
slack_config            xoxe.xoxp-1-<w:166>
slack_refresh           xoxe-1-<w:147>
slack_app               xapp-1-A<u:10>-<d:13>-<x:64>
slack_workflow          xwfp-<d:12>-<d:12>-<w:24>
slack_cookie            xoxd-<s:60>
slack_webhook           hooks.slack.com/services/T<u:10>/B<u:10>/<w:24>
teams_webhook           https://acme.webhook.office.com/webhookb2/«<g:1>@<g:1>/IncomingWebhook/<x:32>/<g:1>»
discord_webhook         discord.com/api/webhooks/<d:18>/<s:68>
discord_bot             MT<w:22>.G<w:5>.<s:38>
telegram                <d:10>:AA<s:33>
twilio_key              SK<x:32>
sendgrid                SG.<s:22>.<s:43>
mailgun_old             key-<x:32>
mailgun_new             <x:32>-<x:8>-<x:8>
mailchimp               <x:32>-us14
mandrill                md-<s:22>
resend                  re_<w:8>_<w:24>
brevo                   xkeysib-<x:64>-<w:16>
brevo_smtp              xsmtpsib-<x:64>-<w:16>
stripe_live             sk_live_<w:99>
stripe_restricted       rk_live_<w:99>
stripe_test             sk_test_<w:24>
stripe_webhook          whsec_<w:32>
square_access           EAAA<s:60>
square_secret           sq0csp-<s:43>
square_old              sq0atp-<s:22>
braintree               access_token$production$<l:16>$<x:32>
shopify_admin           shpat_<x:32>
shopify_custom          shpca_<x:32>
shopify_private         shppa_<x:32>
shopify_secret          shpss_<x:32>
shopify_partner         prtapi_<x:32>
plaid_access            access-production-<g:1>
flutterwave             FLWSECK-<x:32>-X
razorpay_secret         RAZORPAY_KEY_SECRET=«<w:24>»
paystack                sk_live_<x:40>
gocardless              live_<s:40>
adyen                   AQE<a:5><b:52>
doppler_personal        dp.pt.<w:43>
doppler_service         dp.st.prd.<w:43>
infisical               st.<x:24>.<x:32>.<x:32>
onepassword_service     ops_eyJ<s:260>
onepassword_key         A3-<u:6>-<u:6>-<u:5>-<u:5>-<u:5>-<u:5>
vault_service           hvs.<s:95>
vault_batch             hvb.<s:140>
terraform_cloud         <w:14>.atlasv1.<w:67>
pulumi                  pul-<x:40>
supabase_personal       sbp_<x:40>
supabase_oauth          sbp_oauth_<x:40>
supabase_secret         sb_secret_<s:22>_<s:8>
vercel_personal         vcp_<w:56>
vercel_gateway          vck_<w:56>
vercel_blob             vercel_blob_rw_<w:16>_<w:30>
neon                    napi_<l:64>
neon_password           postgresql://me:«npg_<w:12>»@ep-x.neon.test/db
render                  rnd_<w:28>
fly                     fm2_<b:120>
netlify                 nfp_<w:36>
heroku                  HRKU-AA<s:58>
cloudflare_ca           v1.0-<x:24>-<x:146>
cloudflare_user         cfut_<w:40><x:8>
cloudflare_account      cfat_<w:40><x:8>
digitalocean            dop_v1_<x:64>
digitalocean_oauth      doo_v1_<x:64>
digitalocean_refresh    dor_v1_<x:64>
digitalocean_spaces     SPACES_SECRET_ACCESS_KEY=«<b:43>»
scaleway                SCW_SECRET_KEY=«<g:1>»
alibaba                 LTAI5t<w:18>
tencent                 AKID<w:32>
yandex_api              AQVN<s:36>
yandex_oauth            y0_<s:55>
yandex_iam              t1.9eu<s:40>.<s:86>
aws_access              AKIA<u:16>
aws_temporary           ASIA<u:16>
aws_session             IQoJb3JpZ2luX2Vj<b:300>
aws_bedrock             ABSKQmVkcm9ja0FQSUtleS<b:110>
azure_client_secret     <w:3>8Q~<w:34>
azure_devops            <w:76>AZDO<w:4>
databricks              dapi<x:32>
databricks_secret       dose<x:32>
planetscale             pscale_tkn_<s:43>
mongodb_service         mdb_sa_sk_<s:40>
convex                  prod:happy-otter-123|<b:120>
clickhouse_cloud        4b1d<w:38>
newrelic_user           NRAK-<u:27>
newrelic_insights       NRII-<s:32>
newrelic_licence        eu01xx<x:30>FFFFNRAL
grafana_cloud           glc_eyJ<b:120>
grafana_service         glsa_<w:32>_<x:8>
sentry_organization     sntrys_eyJ<b:120>_<b:43>
sentry_user             sntryu_<x:64>
honeycomb               hcaik_<l:58>
axiom                   xaat-<g:1>
axiom_personal          xapt-<g:1>
posthog                 phx_<w:43>
segment                 sgp_<w:64>
sourcegraph             sgp_<x:16>_<x:40>
launchdarkly_api        api-<g:1>
launchdarkly_sdk        sdk-<g:1>
statsig                 secret-<w:43>
linear                  lin_api_<w:40>
notion                  ntn_<d:11><w:35>
notion_old              secret_<w:43>
airtable                pat<w:14>.<x:64>
asana                   2/<d:16>/<d:16>:<x:32>
clickup                 pk_<d:8>_<u:32>
figma                   figd_<s:40>
hubspot                 pat-na1-<g:1>
salesforce              00D<w:12>!AQE<w:90>
intercom                dG9rO<b:54>=
dropbox                 sl.B<s:140>
postman                 PMAK-<x:24>-<x:34>
npm                     npm_<w:36>
pypi                    pypi-AgEIcHlwaS5vcmc<s:150>
rubygems                rubygems_<x:48>
crates                  cio<w:32>
nuget                   oy2<l:43>
docker_personal         dckr_pat_<s:27>
docker_organization     dckr_oat_<s:32>
jfrog_key               AKCp<w:69>
jfrog_reference         cmVmdGtuOjAxOj<w:50>
clojars                 CLOJARS_<x:60>
circleci                CCIPAT_<w:22>_<x:40>
circleci_project        CCIPRJ_<w:22>_<x:40>
buildkite               bkua_<x:40>
buildkite_agent         bkct_<s:43>
sonarqube_project       sqp_<x:40>
sonarqube_user          squ_<x:40>
sonarqube_analysis      sqa_<x:40>
tailscale_auth          tskey-auth-k<w:11>CNTRL-<w:32>
tailscale_api           tskey-api-k<w:11>CNTRL-<w:32>
mapbox                  sk.eyJ<s:80>.<s:22>
typeform                tfp_<w:44>_<w:14>
contentful              CFPAT-<s:43>
prefect                 pnu_<w:36>
dynatrace               dt0c01.<u:24>.<u:64>
duffel                  duffel_live_<s:43>
easypost                EZAK<w:54>
shippo                  shippo_live_<x:40>
readme                  rdme_<l:70>
scalingo                tk-us-<s:48>
openshift               sha256~<s:43>
harness                 pat.<s:22>.<x:24>.<w:20>
frameio                 fio-u-<s:64>
stytch                  secret-live-<s:36>
age                     AGE-SECRET-KEY-1<u:58>
paseto_local            v4.local.<s:120>
paseto_public           v4.public.<s:160>
jwt                     eyJ<s:30>.eyJ<s:80>.<s:43>
jwe                     eyJ<s:60>.<s:120>.<s:16>.<s:90>.<s:22>
facebook                EAAC<w:160>
instagram               IGQVJ<w:140>
twitch_irc              oauth:<l:30>
mattermost_named        MATTERMOST_TOKEN=«<l:26>»
flickr_named            FLICKR_ACCESS_TOKEN=«<x:32>»
ethereum_named          PRIVATE_KEY=«0x<x:64>»
ethereum_json           {"privateKey": "«0x<x:64>»"}
bitcoin_wif             the wallet is «L<k:51>» now
bitcoin_extended        xprv9s21ZrQH143K<k:95>
solana_array            [«<n:64>»]
wireguard               PrivateKey = «<b:43>=»
totp                    otpauth://totp/acme:me?secret=«<B:32>»&issuer=acme
jwk_rsa                 {"kty":"RSA","n":"AQAB","e":"AQAB","d":"«<s:342>»"}
jwk_ec                  {"kty":"EC","crv":"P-256","x":"AA","y":"BB","d":"«<s:43>»"}
jwk_symmetric           {"kty":"oct","k":"«<s:43>»"}
kubeconfig_key          client-key-data: «LS0tLS1CRUdJTi<b:400>»
kubeconfig_token        users:\\n- name: me\\n  user:\\n    token: «<s:40>»\\n
seed_words              mnemonic: «<m:12>»
seed_phrase             seed phrase: "«<m:24>»"
mistral_named           MISTRAL_API_KEY=«<w:32>»
cohere_named            CO_API_KEY=«<w:40>»
deepgram_named          DEEPGRAM_API_KEY=«<x:40>»
assemblyai_named        ASSEMBLYAI_API_KEY=«<x:32>»
exa_named               EXA_API_KEY=«<g:1>»
serper_named            SERPER_API_KEY=«<x:40>»
modal_named             MODAL_TOKEN_SECRET=as-«<w:22>»
azure_openai_named      AZURE_OPENAI_API_KEY=«<w:84>»
postmark_named          POSTMARK_SERVER_TOKEN=«<g:1>»
twilio_auth_named       TWILIO_AUTH_TOKEN=«<x:32>»
paypal_named            PAYPAL_CLIENT_SECRET=«<s:80>»
plaid_named             PLAID_SECRET=«<x:30>»
railway_named           RAILWAY_TOKEN=«<g:1>»
cloudflare_named        CLOUDFLARE_API_TOKEN=«<s:40>»
linode_named            LINODE_TOKEN=«<x:64>»
vultr_named             VULTR_API_KEY=«<u:36>»
hetzner_named           HCLOUD_TOKEN=«<w:64>»
ibm_named               IBMCLOUD_API_KEY=«<s:44>»
aws_secret              aws_secret_access_key = «<b:40>»
azure_storage           DefaultEndpointsProtocol=https;AccountKey=«<b:86>==»;Suffix=y
cosmos                  AccountEndpoint=https://x.test/;AccountKey=«<b:86>==»;
azure_sas               https://x.test/c?sv=2025&sig=«<w:43>%3D»&se=1
upstash_named           UPSTASH_REDIS_REST_TOKEN=«AX<w:50>==»
algolia_named           ALGOLIA_ADMIN_KEY=«<x:32>»
elastic_named           Authorization: ApiKey «<b:60>==»
datadog_named           DD_API_KEY=«<x:32>»
datadog_app_named       DD_APP_KEY=«<x:40>»
amplitude_named         AMPLITUDE_SECRET_KEY=«<x:32>»
codecov_named           CODECOV_TOKEN=«<g:1>»
snyk_named              SNYK_TOKEN=«<g:1>»
ngrok_named             NGROK_AUTHTOKEN=«2<w:26>_<w:21>»
okta_named              OKTA_API_TOKEN=«00<s:40>»
auth0_named             AUTH0_CLIENT_SECRET=«<s:64>»
pagerduty_named         PAGERDUTY_API_KEY=«u+<s:18>»
opsgenie_named          OPSGENIE_API_KEY=«<g:1>»
zendesk_named           ZENDESK_API_TOKEN=«<w:40>»
rollbar_named           ROLLBAR_ACCESS_TOKEN=«<x:32>»
bugsnag_named           BUGSNAG_API_KEY=«<x:32>»
fastly_named            FASTLY_API_TOKEN=«<s:32>»
travis_named            TRAVIS_TOKEN=«<s:22>»
drone_named             DRONE_TOKEN=«<w:32>»
confluent_named         CONFLUENT_API_SECRET=«<b:64>»
kraken_named            KRAKEN_PRIVATE_KEY=«<b:86>==»
binance_named           BINANCE_API_SECRET=«<w:64>»
django_named            SECRET_KEY = 'django-insecure-«<p:50>»'
rails_named             SECRET_KEY_BASE=«<x:128>»
nextauth_named          NEXTAUTH_SECRET=«<b:43>=»
laravel_named           APP_KEY=base64:«<b:43>=»
path_like_slash         CLIENT_SECRET=«/<b:43>»
path_like_slashes       aws_secret_access_key: «/<b:12>/<b:26>»
path_like_dollar        api_key: "«$<w:31>»"
path_like_percent       password = «%<p:19>»
path_like_star          DB_PASSWORD=«*<p:19>»
path_like_dot           auth_token: «.<w:31>»
path_like_tilde         SECRET_TOKEN=«~<w:39>»
path_like_ampersand     password: "«&<p:19>»"
path_like_brace         secret_key = "«{<w:31>»"
path_like_angle         api_token: "«<<w:31>»"
path_like_plus          CLIENT_SECRET=«+<b:43>»
russian                 пароль: «<p:16>»
russian_sentence        Пароль от базы: «<w:16>»
japanese                パスワード：«<w:16>»
japanese_ascii          パスワード: «<w:16>»
chinese                 密码：«<w:16>»
chinese_traditional     密碼: «<w:16>»
chinese_key             密钥=«<w:32>»
korean                  비밀번호: «<w:16>»
portuguese              senha: «<w:16>»
portuguese_env          DB_SENHA=«<w:16>»
french                  mot de passe : «<w:16>»
french_env              MOT_DE_PASSE=«<w:16>»
german                  Passwort: «<w:16>»
german_long             Kennwort = "«<w:16>»"
german_key              Zugangsschlüssel: «<w:32>»
spanish                 contraseña: «<w:16>»
spanish_env             CLAVE_SECRETA=«<w:24>»
italian                 parola d'ordine: «<w:16>»
polish                  hasło: «<w:16>»
czech                   heslo: «<w:16>»
turkish                 şifre: «<w:16>»
dutch                   wachtwoord: «<w:16>»
swedish                 lösenord: «<w:16>»
finnish                 salasana: «<w:16>»
danish                  adgangskode: «<w:16>»
hungarian               jelszó: «<w:16>»
ukrainian               пароль = "«<w:16>»"
greek                   κωδικός: «<w:16>»
hebrew                  סיסמה: «<w:16>»
arabic                  كلمة المرور: «<w:16>»
hindi                   पासवर्ड: «<w:16>»
vietnamese              mật khẩu: «<w:16>»
"""
_WORDS = [
    *("abandon", "ability", "about", "above", "absent", "absorb", "abstract", "absurd", "abuse"),
    *("access", "accident", "account", "accuse", "achieve", "acid", "acoustic", "acquire", "act"),
    *("across", "action", "actor", "actress", "actual", "adapt", "add", "addict", "address"),
]
"""Words of the list that wallets use."""


def modern(seed: int = 11) -> dict[str, tuple[str, str]]:
    """By kind: a text that has a secret in it, and the secret."""
    dice = random.Random(seed)
    return {
        kind: _written(shape.replace("\\n", "\n"), dice)
        for kind, shape in (line.split(maxsplit=1) for line in TOKENS.strip().splitlines())
    }


def _written(shape: str, dice: random.Random) -> tuple[str, str]:
    text = _SLOT.sub(lambda slot: _characters(slot[1], int(slot[2]), dice), shape)
    if "«" not in text:
        return f"the value is {text} so use it", text
    before, _, rest = text.partition("«")
    secret, _, after = rest.partition("»")
    return before + secret + after, secret


def _characters(alphabet: str, size: int, dice: random.Random) -> str:
    match alphabet:
        case "g":
            return str(uuid.UUID(int=dice.getrandbits(128), version=4))
        case "n":
            return ",".join(str(dice.randrange(256)) for _ in range(size))
        case "m":
            return " ".join(dice.choice(_WORDS) for _ in range(size))
        case "B":
            return "".join(dice.choice(ascii_uppercase + "234567") for _ in range(size))
        case _:
            return _varied(_ALPHABETS[alphabet], size, dice)


def _varied(characters: str, size: int, dice: random.Random) -> str:
    """Random characters that begin and end with a letter or digit and, if long, contain both."""
    ends = [item for item in characters if item.isalnum()]
    while True:
        text = "".join(
            dice.choice(ends if at in (0, size - 1) else characters) for at in range(size)
        )
        kinds = {item.isdigit() for item in text if item.isalnum()}
        if size < 6 or len({item.isdigit() for item in ends}) == len(kinds):
            return text


def split_over_blocks(seed: int = 11) -> tuple[str, str]:
    """The two halves of a token that a tool returns in two blocks of text."""
    token = "ghp_" + _varied(_ALPHABETS["w"], 36, random.Random(seed))
    return token[:20], token[20:]
