"""Scan rules for text that a model reads. `scan` applies them."""

from __future__ import annotations

from mainspring.runtime.packages.scan_rule import ScanRule, compile_pattern

_ENDS = r"(?:instructions?|prompts?|rules?|guidelines?|directives?|polic(?:y|ies)|safeguards?)"
_PERSON = r"(?:the\s+|your\s+|any\s+)?(?:user|human|operator|developer|owner|person|anyone|anybody)"
_PRIVATE_DATA = (
    r"(?:conversation|chat\s+history|transcript|system\s+prompt|environment\s+variables?|env\s+vars?"
    r"|credentials?|secrets?|passwords?|private\s+keys?|ssh\s+keys?|cookies|\.env|id_rsa|\.ssh)"
)

INJECTION: tuple[ScanRule, ...] = (
    ScanRule(
        "overrides-instructions",
        "injection",
        "caution",
        "danger",
        "It tells the model to ignore its instructions.",
        compile_pattern(
            (
                r"\b(?:ignore|disregard|forget|override|bypass|skip)\s+(?:(?:all|any|the|your|of"
                r"|every|these|those|my|its)\s+)*(?:previous|prior|earlier|above|preceding"
                r"|foregoing|original|existing|system|developer|safety|security|user'?s?)\s+"
                rf"(?:\w+\s+)?{_ENDS}"
            ),
            (
                r"\b(?:ignore|disregard|forget)\s+(?:everything|all)\s+(?:you|that|above|before"
                r"|prior|previous)"
            ),
            (
                r"\b(?:supersedes?|overrides?)\s+(?:all|any|your)\s+(?:\w+\s+)?"
                rf"(?:{_ENDS}|system\s+prompt)"
            ),
            (
                r"you\s+are\s+now\s+(?:in\s+)?(?:an?\s+)?(?:developer|dan|god|unrestricted"
                r"|jailbroken|unfiltered|admin|root|debug)\b"
            ),
            r"\b(?:jailbreak|DAN)\s+mode|no\s+longer\s+bound\s+by",
        ),
    ),
    ScanRule(
        "hides-from-people",
        "injection",
        "caution",
        "danger",
        "It tells the model to keep something from the person it works for.",
        compile_pattern(
            (
                r"\b(?:do\s+not|don'?t|never|must\s+not)\s+(?:tell|inform|alert|notify"
                rf"|warn)\s+{_PERSON}(?:\s+(?:about|of|that|what|this|anything)\b|\s*[.,;!:\n)]|$)"
            ),
            (
                r"\b(?:do\s+not|don'?t|never|must\s+not)\s+(?:mention|reveal|disclose|report|show"
                rf"|say)\s+(?:\w+\s+){{0,4}}to\s+{_PERSON}"
            ),
            (
                rf"\bwithout\s+(?:{_PERSON}(?:'s)?\s+(?:knowledge|knowing|noticing)"
                r"|(?:telling|informing|alerting|notifying"
                rf"|the\s+knowledge\s+of)\s+{_PERSON})"
            ),
            (
                r"\b(?:hide|conceal|keep)\s+(?:this|it|these|that|them)\s+"
                rf"(?:\w+\s+){{0,2}}from\s+{_PERSON}"
            ),
            (
                rf"{_PERSON}\s+(?:must|should|may|can)\s*(?:not|never)\s+(?:know|notice|find\s+out"
                r"|be\s+(?:told|informed|aware))"
            ),
        ),
    ),
    ScanRule(
        "sends-secrets",
        "injection",
        "caution",
        "danger",
        "It tells the model to reveal private data.",
        compile_pattern(
            (
                r"\b(?:send|upload|post|transmit|forward|exfiltrate|leak|e-?mail|report"
                rf"|deliver)\b[^.\n]*{_PRIVATE_DATA}[^.\n]*\b(?:to|at|via|into|as)\b[^.\n]*(?:https?://"
                r"|webhook|server|endpoint|@|\burl\b|collector)"
            ),
            (
                r"\b(?:read|collect|gather|find|grab|include|append|encode"
                rf"|copy)\b[^.\n]*{_PRIVATE_DATA}[^.\n]*\b(?:and|then)\s+(?:send|upload|post|transmit"
                r"|forward|append|include|e-?mail|put)\b"
            ),
            r"!\[[^\]\n]*\]\(https?://[^)\s]*[?&/=](?:\{|\$|<|%7b)[^)\n]*\)",
        ),
    ),
    ScanRule(
        "fake-turns",
        "injection",
        "caution",
        "danger",
        "It imitates a message of somebody else: the system, the model, a tool.",
        compile_pattern(
            (
                r"<\|(?:im_start|im_end|im_sep|system|assistant|user|endoftext|begin_of_text"
                r"|start_header_id|eot_id)\b[^>\n]*\|?>"
            ),
            r"<\|im_(?:start|end)\|>",
            r"</?system-reminder>|<</?SYS>>|\[/?INST\]|</?(?:antml:)?function_(?:calls|results)>",
        ),
    ),
    ScanRule(
        "roles-in-text",
        "injection",
        None,
        "caution",
        "Tags that look like a message of somebody else; they are common in example prompts.",
        compile_pattern(
            r"</?(?:system|assistant|system_prompt|admin)>|</?tool_result|<(?:antml:)?invoke\s+name=",
            r"(?:^|\n)\s*(?:#+\s*)?(?:system|assistant)\s*(?:message|prompt|override)?\s*:\s*\S",
        ),
    ),
    ScanRule(
        "claims-authority",
        "injection",
        None,
        "caution",
        "It claims to speak for somebody with authority over the model.",
        compile_pattern(
            (
                r"\b(?:this|following)\s+(?:is|are)\s+(?:an?\s+|the\s+)?(?:\w+\s+)?(?:system"
                r"|official|administrator|admin|anthropic|openai|security)\s+(?:message"
                r"|instruction|notice|override|update|directive)"
            ),
            (
                r"\b(?:by\s+order\s+of|authorized\s+by|message\s+from)\s+(?:anthropic|openai"
                r"|the\s+(?:administrator|security\s+team|developers))"
            ),
        ),
    ),
    ScanRule(
        "without-asking",
        "injection",
        None,
        "caution",
        "It tells the model to act without asking.",
        compile_pattern(
            (
                r"\bwithout\s+(?:asking|requesting|waiting\s+for|needing|seeking)\s+"
                r"(?:\w+\s+){0,3}(?:permission|confirmation|approval|consent)"
            ),
            rf"\bwithout\s+{_PERSON}(?:'s)?\s+(?:consent|awareness)\b",
            r"\b(?:secretly|covertly|surreptitiously|stealthily)\b",
            r"(?:do\s+not|don'?t|never)\s+ask\s+for\s+(?:permission|confirmation|approval)",
        ),
    ),
)

OUT_OF_SIGHT = ScanRule(
    "out-of-sight",
    "hidden",
    "caution",
    "caution",
    "It is placed far to the right or far below, where people do not look.",
    compile_pattern(r"[ \t]{120}[ \t]*\S", r"(?:[ \t\r]*\n){40}\s*\S"),
)
HIDDEN_STYLE = ScanRule(
    "invisible-style",
    "hidden",
    None,
    "danger",
    "Text that the model reads and a person does not see.",
    compile_pattern(
        (
            r"<[a-z][^>\n]*style\s*=[^>\n]*(?:display\s*:\s*none|visibility\s*:\s*hidden"
            r"|font-size\s*:\s*0|opacity\s*:\s*0(?:[;\"'\s]|\.0)|color\s*:\s*(?:white|transparent"
            r"|#fff(?:fff)?\b|rgba?\(\s*255\s*,\s*255\s*,\s*255))"
        ),
        (
            r"<font[^>\n]*color\s*=\s*[\"']?(?:white|#fff)"
            r"|<(?:div|span|p)\s(?:[^>\n]*\s)?hidden(?:\s[^>\n]*|=[^>\n]*)?>"
        ),
    ),
)
IMPERATIVE = compile_pattern(
    r"\byou\s+(?:must|should|will|are|have\s+to|need\s+to)\b",
    r"\b(?:assistant|agents?|claude|model|ai)\b|\binstructions?\b",
    r"\b(?:execute|secretly|exfiltrate|curl|wget)\b|\brun\s+(?:the|this|these|`)|\bwhen\s+asked\b",
)
"""Words that comments for people rarely have, and comments for the model often do."""
AT_ONCE = ScanRule(
    "runs-when-read",
    "permissions",
    None,
    "caution",
    "Once trusted, this command runs when the skill is used, before the model reads anything.",
    compile_pattern(r"(?:^|\s)!`[^`\n]+`", r"(?:^|\n)```!\s*\n[^`]*```"),
)
COMMENT = ScanRule(
    "comment-for-the-model",
    "hidden",
    None,
    "caution",
    "A hidden comment that reads like an instruction.",
    compile_pattern(r"(?:^|\n)\[[^\]\n]*\]:\s*#\s*[(\"'][^\n]*"),
)
LINK = ScanRule(
    "leads-out",
    "links",
    None,
    "note",
    "A link to something outside the skill.",
    compile_pattern(r"\]\(\s*(?:\.\./|~/|file:)[^)\n]*\)"),
)
