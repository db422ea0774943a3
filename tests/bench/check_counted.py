#!/usr/bin/env python3
"""Runs a workload of parkade-bench at a small scale and asserts the figures that are counted.

Times are reported, not asserted: the machines of CI are busy.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def run(program, workload, scale):
    """Returns the workload's figures."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        command = [program, "run", workload, "--scale", str(scale), "--dir", folder,
                   "--json", str(result)]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
        (line,) = result.read_text().splitlines()
        left = [path.name for path in pathlib.Path(folder).iterdir() if path != result]
    outcome = json.loads(line)
    if list(outcome) != ["name", "figures", "goals", "met"] or outcome["name"] != workload:
        raise SystemExit(f"not the promised object: {line}")
    if left:
        raise SystemExit(f"left behind: {left}")
    return outcome["figures"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("bounds", nargs="*", metavar="FIGURE=BOUND",
                        help="at most; FIGURE==VALUE: exactly")
    args = parser.parse_args()
    figures = run(args.program, args.workload, args.scale)
    missed = []
    for bound in args.bounds:
        figure, most = bound.split("=", 1)
        exact = most.startswith("=")
        right = float(most.lstrip("="))
        value = figures[figure]
        if not (value == right if exact else 0 < value <= right):
            missed.append(f"{figure} is {value}, {'not' if exact else 'at most'} {right:g}")
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
