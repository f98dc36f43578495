"""What a page must never do, whatever texts it shows, and the texts that try."""

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
"""Runs before the page does."""

RUN = "alert(1)"
TAGS = (
    *("script", "img", "svg", "iframe", "object", "embed", "video", "audio", "body", "input"),
    *("details", "marquee", "math", "form", "button", "a", "style", "link", "meta", "base"),
)
EVENTS = ("onload", "onerror", "onclick", "onmouseover", "onfocus", "ontoggle", "onbegin")
SCHEMES = (
    *("javascript:", "JaVaScRiPt:", "java\tscript:", "\x01javascript:", "data:text/html,"),
    *("vbscript:", "file:///", "blob:", "//evil.example/", "https://user:pass@evil.example/"),
)
PAYLOADS = (
    *(f"<{tag} src=x {event}={RUN}>" for tag in TAGS[:10] for event in EVENTS[:3]),
    *(f"<{tag}>{RUN}</{tag}>" for tag in TAGS),
    *(f"[click me]({scheme}{RUN})" for scheme in SCHEMES),
    *(f"![picture]({scheme}{RUN})" for scheme in SCHEMES),
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f'"><script>{RUN}</script>',
    f"'-{RUN}-'",
    f"${{{RUN}}}",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"</textarea><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"<!--><script>{RUN}</script>-->",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"<img src=x:x onerror\x0b={RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}>",
    "[![x](https://evil.example/a.png)](https://evil.example)",
    "https://evil.example/?q=<script>",
    "`<script>alert(1)</script>`",
    "```html\n<script>alert(1)</script>\n```",
    "| <script>alert(1)</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | c |",
    "# <script>alert(1)</script>",
    "> <img src=x onerror=alert(1)>",
    *("__proto__", "constructor", "%3Cscript%3Ealert(1)%3C/script%3E"),
    *("\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07", "\x1b[31mred\x1b[0m"),
    *("\u202egnp.exe", "\u2067right to left\u2069", "שלום <script>alert(1)</script>"),
)
FORBIDDEN = (
    "script:not([src^='/dashboard/']), iframe, object, embed, base, form[action], meta[http-equiv],"
    " style, link:not([href^='/dashboard/']), img:not([src^='/v1/sessions/']), video, audio"
)
"""Elements that only a payload could have made."""
ATTRIBUTES = """
() => [...document.querySelectorAll("*")].flatMap((element) =>
  [...element.attributes]
    .filter(({name, value}) =>
      name.startsWith("on") || /^\\s*(javascript|data|vbscript):/i.test(value))
    .map(({name}) => `${element.tagName} ${name}`))
"""
