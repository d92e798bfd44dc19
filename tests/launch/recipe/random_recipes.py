#!/usr/bin/env python3
"""Trains random recipes for three steps and gives the runs to other commands. Each must end with exit code 0, or refuse
with 2 and sentences; nothing may crash, print NaN or take a minute. A number always gives the same recipe.

    random_recipes.py LONGSTRIDE [FIRST COUNT]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import drawn as draw

LONGSTRIDE = str(pathlib.Path(sys.argv[1]).resolve())
FIRST, COUNT = (int(text) for text in sys.argv[2:4]) if len(sys.argv) > 2 else (0, 60)


def commands(drawn):
    yield "eval", "run", "--split", "test", *(() if drawn.streams else ("--windows", "3"))
    if drawn.streams:
        yield ("eval", "run", "--split", "valid", "--memory", str(drawn.one_of(0, 3, drawn.context, 4 * drawn.context)),
               *(("--clamp", str(drawn.one_of(1, 5))) if drawn.chance(0.3) else ()))
    yield "sample", "run", "--count", "1", "--length", str(drawn.one_of(5, drawn.context, 2 * drawn.context + 3))
    yield "show", "pattern", "run"
    yield "export", "run", "--output", "exported"
    yield "report", "run"
    yield ("train", "recipe.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=5")


def main():
    trained = 0
    with tempfile.TemporaryDirectory() as work:
        data = draw.text(work, LONGSTRIDE)
        for number in range(FIRST, FIRST + COUNT):
            folder = pathlib.Path(work) / str(number)
            folder.mkdir()
            drawn = draw.Drawn(number)
            (folder / "recipe.yaml").write_text(json.dumps(drawn.recipe(data), indent=1))
            try:
                if draw.ends_well(LONGSTRIDE, ["train", "recipe.yaml", "--run", "run"], folder):
                    trained += 1
                    for command in commands(drawn):
                        draw.ends_well(LONGSTRIDE, command, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                sys.exit(f"random_recipes.py: recipe {number}: {error}\n{(folder / 'recipe.yaml').read_text()}")
    print(f"{trained} of {COUNT} recipes trained, the others were refused")
    sys.exit(0 if trained >= COUNT // 2 else "random_recipes.py: fewer than half were accepted")


main()
