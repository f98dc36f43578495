"""`python -m tests.crash`: a crash run from the command line."""

import argparse
import sys

import anyio
import msgspec
from tests.crash.campaign import ROUND, Options, run
from tests.crash.report import Report, Tally
from tests.crash.stores import OPENER

_EVERY = 100


def main() -> int:
    asked = _arguments()
    options = Options(
        opener=asked.opener,
        child_opener=asked.child_opener,
        start=asked.start,
        progress=None if asked.json else _progress,
    )

    async def crash() -> Report:
        return await run(
            asked.store, points=asked.points, seed=asked.seed, lanes=asked.lanes, options=options
        )

    report = anyio.run(crash)
    if asked.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        _print(report, asked.store)
    return 0 if report.ok else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description="Kill processes that write to a store and check that nothing was lost.",
    )
    add = parser.add_argument
    add("--store", required=True, help="postgresql://… or the path of a SQLite file to be made")
    add("--points", type=int, default=300, help="how many crashes (%(default)s)")
    add("--seed", type=int, default=1, help="the same seed, the same crashes (%(default)s)")
    add("--start", type=int, default=0, help=f"first point, a multiple of {ROUND}")
    add("--lanes", type=int, default=1, help="how many crash at once (%(default)s)")
    add("--opener", default=OPENER, help="package.module:function that opens the store")
    add("--child-opener", help="another one for the processes that are killed")
    add("--json", action="store_true", help="print only the report, as JSON")
    return parser.parse_args()


def _progress(tally: Tally) -> None:
    if tally.points % _EVERY == 0:
        sys.stdout.write(f"{tally.points} crashes, {tally.acknowledged} acknowledgements kept\n")
        sys.stdout.flush()


def _print(report: Report, store: str) -> None:
    lines = [f"{name:16} {value}" for name, value in msgspec.to_builtins(report).items()]
    lines[-1] = "violations" if report.violations else "no violations"
    for violation in report.violations:
        start = violation.point // ROUND * ROUND
        lines += [
            f"  {violation.kind} at {violation.point}: {violation.session_id} {violation.what}",
            f"    again: --store {store} --seed {violation.seed} --start {start} --points {ROUND}",
        ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
