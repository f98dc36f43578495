"""Values that would be code if they became part of a program, a condition or a path."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.workflows.fake_steps import FakeSteps, files_of, play, says

from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.format.program_text import bash_program, script_program
from mainspring.runtime.workflows.format.references import Reference

PIECES = (
    *("$(touch OWNED)", "`touch OWNED`", "; touch OWNED #", "| touch OWNED", "&& touch OWNED"),
    *("'; touch OWNED; '", '"; touch OWNED; "', "\n touch OWNED \n", "${IFS}touch${IFS}OWNED"),
    *(
        "'''\nimport os; os.system('touch OWNED')\n'''",
        '"+__import__("os").system("touch OWNED")+"',
    ),
    *("EOF\ntouch OWNED\nEOF\n", "a[$(touch OWNED)]", "$((a[$(touch OWNED)]))", "\\", "\\'", "\0"),
    *(
        "--help",
        "-rf",
        "-e",
        "../../OWNED",
        "/dev/stdin",
        "~",
        "*",
        "{a,b}",
        "!!",
        "%s%n",
        "é☂\u202e",
    ),
    *(
        "$node.output",
        "$INPUTS.x",
        "$ARTIFACTS_DIR",
        "<promise>DONE</promise>",
        "'",
        '"',
        "\r",
        "\t",
    ),
    *("<(touch OWNED)", "$'\\x60touch OWNED\\x60'", "\x1b]0;x\x07", "true || 'x' == 'x'", " "),
)
BASH = """\
printf '%s\\0' $node.output "$node.output" '$node.output' x$node.output"y"
value=$node.output; printf '%s\\0' "$value"
for one in "$node.output"; do printf '%s\\0' "$one"; done
text=$(cat <<EOF
$node.output
EOF
)
printf '%s\\0' "$text"
[ "$node.output" = "$value" ] && printf 'same\\0'
case $node.output in "$value") printf 'same\\0';; esac
"""
PYTHON = """\
import os, sys
values = ["$node.output", '$node.output', '''$node.output''']  # $node.output
sys.stdout.buffer.write("\\0".join(values).encode("utf-8", "surrogatepass"))
"""


def hostile(seed: int) -> str:
    chosen = random.Random(seed)
    return "".join(chosen.choices(PIECES, k=chosen.randint(1, 5)))


def run(command: list[str], text: str, variables: dict[str, str], folder: Path) -> bytes:
    environment = {"PATH": os.environ["PATH"], **variables}  # noqa: TID251 (of the test)
    done = subprocess.run(
        command, input=text.encode(), env=environment, cwd=folder, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_value(value: str, folder: Path) -> None:
    def value_of(_: Reference) -> object:
        return value

    clean = value.replace("\0", "")
    program = bash_program(BASH, value_of)
    printed = run(["bash", "-s"], program.text, program.variables, folder).decode().split("\0")
    in_document = clean.rstrip("\n")
    assert printed == [
        *(clean, clean, clean, f"x{clean}y", clean, clean, in_document, "same", "same", ""),
    ]
    script = script_program(PYTHON, value_of, "uv")
    shown = run([sys.executable, "-"], script.text, script.variables, folder).decode()
    assert shown.split("\0") == [clean, clean, clean]
    assert list(folder.iterdir()) == []


EVALUATED = (
    *("eval $n.output", "(( $n.output ))", "((x = $n.output + 1))", "let x=$n.output"),
    *("[[ $n.output -eq 1 ]]", "[ -v $n.output ]", "test -v $n.output", "x=$(( $n.output ))"),
    *("a[$n.output]=1", "echo ${a[$n.output]}", "echo ${x:$n.output:2}", "declare -i x=$n.output"),
    *("for ((i=0; i<$n.output; i++)); do :; done", "printf -v $n.output x", "read $n.output"),
    *("unset $n.output", "trap '$n.output' EXIT", "source $n.output", ". $n.output", "$n.output x"),
    *("exec $n.output", "command $n.output", "sudo bash -c $n.output", "sh -c '$n.output'"),
    *("timeout 5 bash -c '$n.output'", "find . -exec $n.output ';'", "xargs sh -c '$n.output'"),
    *(
        "awk '$n.output'",
        "sed s/x/$n.output/",
        "bash <<< $n.output",
        "bash -s <<EOF\n$n.output\nEOF",
    ),
    *("echo $n.output | bash", "echo $n.output | tee x | sh -x", "python3 -c 'print($n.output)'"),
)
HARMLESS = (
    *(
        "read -r x <<< $n.output",
        "echo $n.output | jq .x",
        'awk -v x="$n.output" 1',
        "echo ${x:-$n.output}",
    ),
    *(
        '[ "$n.output" = x ]',
        "find . -name $n.output",
        "timeout 5 grep $n.output f",
        "env X=$n.output x",
    ),
    *("echo $n.output | python3 -c 'import sys'", "git commit -m $n.output", "export X=$n.output"),
)


def test_programs_that_would_evaluate_a_value_are_refused_unless_it_is_a_number():
    for text in EVALUATED:
        with pytest.raises(InvalidInput, match="not a whole number"):
            bash_program(text, lambda _: "a[$(touch OWNED)]")
        bash_program(text, lambda _: "7")
    for text in HARMLESS:
        assert "MS_VALUE_0" in bash_program(text, lambda _: "a[$(touch OWNED)]").text


def test_a_sample_of_hostile_values_is_never_code(tmp_path: Path):
    for seed in range(0, 1000, 100):
        check_value(hostile(seed), tmp_path)


@pytest.mark.slow
def test_a_thousand_hostile_values_are_never_code(tmp_path: Path):
    for seed in range(1000):
        check_value(hostile(seed), tmp_path)


async def test_hostile_outputs_stay_values_on_their_way_through_a_run(log: SessionLog):
    """Conditions, `with`, prompts, inputs of other workflows, fan-outs, and paths of nodes."""
    text = """\
name: w
description: d
nodes:
  - {id: make, bash: make}
  - {id: only, prompt: "p $make.output", when: "$make.output == 'x'", depends_on: [make]}
  - {id: tell, command: say, with: {v: {from: $make.output}}, depends_on: [make]}
  - {id: list, bash: list, depends_on: [make]}
  - {id: each, workflow: child, fan_out: {items: $list.output, as: v}, depends_on: [list]}
"""
    child = """\
name: child
description: d
inputs: {v: {required: true}}
nodes: [{id: look, prompt: "look $INPUTS.v"}]
"""
    for seed in range(10):
        value = hostile(seed)
        outputs = {"make": value, "list": json.dumps([value])}
        steps = FakeSteps(program=lambda step, outputs=outputs: says(outputs[step.path]))
        files = files_of(text, child, say="say $INPUTS.v")
        _, state = await play(log, files, steps)
        assert state.nodes["only"].status == "skipped"
        assert steps.prompts["tell"] == f"say {value}"
        assert steps.prompts["each/1/look"] == f"look {value}"
        assert set(state.nodes) == {"make", "only", "tell", "list", "each", "each/1/look"}
