# SPDX-License-Identifier: Apache-2.0
"""Prints the table of results."""

import sys


def number(value, unit):
    return f"{value:.0f} {unit}" if unit in ("KiB", "files") else f"{value:.2f} {unit}"


def figures(r):
    if "ms" in r:
        return ", ".join(f"{name} {ms:g} ms" for name, ms in r["ms"].items())
    rest = {k: v for k, v in r.items() if k not in ("what", "value", "unit", "goal", "met", "min_max_ms", "reps")}
    return ", ".join(f"{k} {v:g}" for k, v in rest.items())


def print_table(machine, rows, notes):
    print(f"{machine['tony']} beside MPICH {machine['mpich']} on {machine['cores']} cores ({machine['model']}), "
          f"{machine['memory_mib'] // 1024} GiB, Linux {machine['kernel']}; medians, at most the goal is good")
    print()
    print_rows(rows, notes)


def print_rows(rows, notes):
    lines = [(r["what"], number(r["value"], r["unit"]), number(r["goal"], r["unit"]) if r["goal"] is not None else "",
              {True: "pass", False: "MISS", None: ""}[r["met"]], figures(r)) for r in rows]
    head = ("what", "ours", "goal", "", "figures")
    widths = [max(len(x[i]) for x in lines + [head]) for i in range(4)]
    for line in [head] + lines:
        print("  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths))) + "  " + line[4])
    missed = sum(r["met"] is False for r in rows)
    met = sum(r["met"] is True for r in rows)
    print(f"\n{met} goals met, {missed} missed")
    for note in notes:
        print(f"note: {note}")


def exit_status(program, rows):
    """0, or 1 if a goal was missed; then the last lines on stderr name each."""
    missed = [r for r in rows if r["met"] is False]
    for r in missed:
        print(f"{program}: goal missed: {r['what']}: {number(r['value'], r['unit'])}, the goal is {number(r['goal'], r['unit'])}",
              file=sys.stderr)
    return 1 if missed else 0
