"""The workflow that `mainspring workflow new` writes."""

from __future__ import annotations

import re

from mainspring.core.errors import InvalidInput

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TEXT = """\
name: {name}
description: Make one change, check it, let a person decide, and merge it.
interactive: true
mutates_checkout: true

nodes:
  - id: work
    loop_group:
      max_iterations: 5
      until_bash: test $approve.output.decision = approve
      nodes:
        - id: change
          prompt: |
            Make this change in the repository, and nothing else: $ARGUMENTS
            If a person has sent your last attempt back, correct it as they say:
            $LOOP_PREV.approve.output.text
          allowed_tools: [Read, Glob, Grep, Edit, Write]

        - id: check
          bash: |
            git diff --check
            if [ -f Makefile ] && grep -q '^test:' Makefile; then make test; fi
            echo "checked"
          depends_on: [change]

        - id: approve
          approval:
            message: Merge this change? The evidence below is what was checked.
            decisions:
              - {{id: approve, label: merge it}}
              - {{id: rework, label: send it back; say why}}
          depends_on: [check]

  - id: merge
    bash: |
      git add --all
      git commit --quiet --message "Change: $ARGUMENTS"
      git show --stat --oneline HEAD
    depends_on: [work]
"""


def new_workflow(name: str) -> str:
    """Raises: InvalidInput: the name is not valid."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a name of lowercase letters, digits, single hyphens")
    return _TEXT.format(name=name)
