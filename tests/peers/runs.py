"""Trains recipes for some minutes and their peers for as many seconds, one run per GPU, and tabulates bits per byte.

    run.py runs rows --data DIR --output DIR [--seconds 300] [--rows "enwik8-fixed audio-1m"] [options below]
    run.py runs text --text FILE --output DIR [--seconds 480] [--runs "transformer-xl transformer-xl-peer"] [--ahead 0]
                     [--set "KEY=VALUE ..."] [--context 512] [--device gpu] [options below]
    options: [--seeds "1 2 3"] [--gpus 2] [--command build/cuda/longstride]

rows: every row of tables 1, 2 and 4. --data: a folder with text.h5, cifar10.h5, images.h5 and audio.h5 from `longstride
prepare`. Both sides use the same sequences per step, the same dropout (in ROWS), no recompute, and the recipe's rate with a
twentieth of the time as warmup and a cosine to the end, and train the peer's model: position tables `attention` and, for
strided rows, local and column attention in turn (the recipes for pictures have the paper's tables and the authors' cycle of
layers, which learn later: docs/notes/2026-11/results.md).
text: the models with distances or memories, in their published form, in the house's form, and as peers. --text: the text
itself, as both sides divide it alike. Runs are recipes/survey/text-8min-RUN.yaml, with their own numbers of steps, and RUN-peer
for a peer, which trains for --seconds; `text` is recipes/beyond/text-8min.yaml. Models with memories are scored as 32 streams,
each of which first reads eight windows of --context bytes, and tabulated apart from those that read windows. --set changes
recipes, for a try. --ahead: how many of a peer's stages are compiled at once, before it trains.

The clock runs while they train, but not while they compile, choose algorithms or score. A seed determines weights, order of
data and dropout; with several the tables have means and single figures. OUTPUT keeps every run (seed-N/RUN), results.md and, of
rows, curves.svg; runs that already have a result are not repeated. Exits with 1 if a run has failed.
"""
import argparse
import datetime
import json
import pathlib
import shlex
import subprocess
import sys

import plot

HERE = pathlib.Path(__file__).resolve().parent
RECIPES = HERE.parents[1] / "recipes"
# row: (table, the peer's model, data, sequences per step, dropout). Rows of other tables that are the same training are not
# repeated. In some minutes text is seen little more than once; the sample data of the others many times. CIFAR-10: with 32
# pictures per step, 128 layers have some 60 steps of warmup in five minutes, and whether they leave the first plateau is
# random, on both sides; with 8 they have up to four times as many.
ROWS = {
    "enwik8-dense": ("table2", "enwik8_dense", "text", 8, 0), "enwik8-fixed": ("table1", "enwik8_fixed", "text", 8, 0),
    "enwik8-strided": ("table2", "enwik8_strided", "text", 8, 0), "cifar10-dense": ("table2", "cifar_dense", "cifar10", 8, 0.25),
    "cifar10-fixed": ("table2", "cifar_fixed", "cifar10", 8, 0.25),
    "cifar10-strided": ("table1", "cifar_strided_rows", "cifar10", 8, 0.25),
    "imagenet64-strided": ("table1", "imagenet64_rows", "images", 8, 0.25),
    "audio-strided": ("table1", "audio65k", "audio", 1, 0.25), "audio-262k": ("table4", "audio262k", "audio", 1, 0.25),
    "audio-1m": ("table4", "audio1m", "audio", 1, 0.25)}
# A peer and its form, with scores in fp32: with bf16 the Compressive Transformer and Longformer diverged every time, and
# Transformer-XL once of three times. Models with memories ended lower by matrices on an H200 than by FlexAttention on an H100.
PEERS = {"transformer-xl-peer": ("transformer_xl", "matrix"), "adaptive-peer": ("adaptive_span", "matrix"),
         "compressive-peer": ("compressive", "matrix"), "longformer-peer": ("longformer", "chunks")}
SYSTEMS = ("transformer-xl", "adaptive", "compressive", "longformer")


def quoted(words):
    return " ".join(shlex.quote(str(word)) for word in words)


def settings_of(settings):
    return [word for setting in settings for word in ("--set", setting)]


def peer_command(verb, at, *words):
    return f"{quoted([sys.executable, HERE / 'run.py', verb, *words])} >{quoted([f'{at}.peer'])} 2>{quoted([f'{at}.peer.log'])}"


def row_commands(o, row, seed, at):
    """Ours and the peer's."""
    table, model, data, batch, dropout = ROWS[row]
    file, audio, strided = o.data / f"{data}.h5", data == "audio", row.endswith("-strided")
    settings = [f"model.dropout={dropout}", "model.recompute=none", "model.positions=attention", f"train.seed={seed}",
                f"train.global_batch={batch}", f"train.micro_batch={batch}", "train.log_every=20",
                "train.checkpoint_every=1000000", *(["data.cross_files=true"] if audio else []),
                *(["model.attention.parts=[local, column]"] if strided else [])]
    ours = quoted([o.command, "reproduce", table, "--row", row, "--recipes", RECIPES, "--data", o.data, "--output", at,
                   "--train-seconds", o.seconds, "--device", "gpu", *settings_of(settings)])
    peer = peer_command("train", at, "sparse", file, "--model", model, "--seconds", o.seconds, "--batch", batch, "--dropout",
                        dropout, "--seed", seed, "--windows", 0, "--every", 20, *(["--across"] if audio else []))
    return {"peer": peer, "ours": f"{ours} >{quoted([f'{at}.ours'])} 2>&1"}


def text_commands(o, run, seed, at):
    if run in PEERS:
        peer, form = PEERS[run]
        return {"peer": peer_command("train", at, peer, o.text, "--attention", form, "--seconds", o.seconds, "--seed", seed,
                                     "--ahead", o.ahead, "--device", "cpu" if o.device == "cpu" else "cuda")}
    # As many streams as the peers read, and as much before each: eight windows.
    scored = ["--batch", 32] + ([] if cold(run) else ["--min-context", 8 * o.context])
    settings = [f"data.path={o.output / 'text.h5'}", f"train.seed={seed}", "train.checkpoint_every=0", *o.set.split()]
    train = quoted([o.command, "train", recipe_of(run), "--run", at, "--device", o.device, *settings_of(settings)])
    score = quoted([o.command, "eval", at, "--device", o.device, "--split", "test", *scored, "--json"])
    log = quoted([f"{at}.log"])
    return {"ours": f"{train} >{log} 2>&1 && {score} >{quoted([f'{at}.json'])} 2>>{log}"}


def recipe_of(run):
    return RECIPES / ("beyond/text-8min.yaml" if run == "text" else f"survey/text-8min-{run}.yaml")


def cold(run):
    return run.startswith(("text", "longformer"))


def run_all(o, names, commands):
    """Every command once, on the GPUs of this host. The peers come first, because they compile."""
    lines = {"peer": [], "ours": []}
    for name in names:
        for seed in o.seeds.split():
            folder = o.output / f"seed-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            for side, command in commands(o, name, seed, folder / name).items():
                done = folder / f"{name}.{side}.done"
                if not done.exists():
                    lines[side].append(f"0 {{ {command}; }} && touch {quoted([done])}\n")
    queue = [HERE.parent / "gpu/scripts/queue.sh", "--gpus", str(o.gpus)]
    return subprocess.run(queue, input="".join(lines["peer"] + lines["ours"]), text=True, stdout=sys.stderr).returncode


def row_result(folder, row):
    """Ours: the line of `reproduce`'s table."""
    found = json.loads(sorted((folder / row).glob("table*.json"))[0].read_text())["rows"][0]
    return {"bits": found["bits_per_byte"], "bytes": found["tokens"], "seconds": None, "steps": None}


def text_result(folder, run):
    """Time is known at steps that are logged: from the first to the last, and the first ones as fast as those."""
    logged = [line for line in plot.json_lines(folder / run / "metrics.jsonl") if "time" in line and "tokens" in line]
    first, last = logged[0], logged[-1]
    at = [datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")) for line in (first, last)]
    timed = last["tokens"] - first["tokens"]
    seconds = (at[1] - at[0]).total_seconds() * last["tokens"] / timed if timed else None
    score = json.loads((folder / f"{run}.json").read_text())["bits_per_byte"]
    return {"bits": score, "seconds": seconds, "steps": last["step"], "bytes": last["tokens"]}


def peer_result(folder, run):
    last = plot.json_lines(folder / f"{run}.peer")[-1]
    return {"bits": last["bits_per_byte"], "seconds": last["trained_seconds"], "steps": last["steps"],
            "bytes": last["bytes_seen"]}


def results(o, read, name):
    """[figures] of the seeds that were run to their end."""
    found = []
    for seed in o.seeds.split():
        try:
            found.append(read(o.output / f"seed-{seed}", name))
        except (OSError, KeyError, IndexError, ValueError):
            pass  # not run, or ended early
    return found


def cells(found, *keys):
    """Bits per byte, as a mean followed by each, and means of the other keys."""
    if not found:
        return ["not run", *[""] * len(keys)]
    mean = {key: None if None in [r[key] for r in found] else sum(r[key] for r in found) / len(found) for key in ("bits", *keys)}
    each = f" ({', '.join(format(r['bits'], '.4f') for r in found)})" if len(found) > 1 else ""
    return [f"{mean['bits']:.4f}{each}", *("" if mean[key] is None else f"{mean[key]:,.0f}" for key in keys)]


def table(header, lines):
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" if row[0] != "---" else "|" + "|".join(row) + "|" for row in rows) + "\n"


def rows_table(o, rows):
    return table([f"{o.seconds:g} s per run", "ours, bits per byte", "ours, bytes seen", "peer, bits per byte", "peer, bytes seen"],
                 [[row, *cells(results(o, row_result, row), "bytes"), *cells(results(o, peer_result, row), "bytes")] for row in rows])


def text_tables(o, runs):
    read = lambda run: peer_result if run.endswith("-peer") else text_result  # noqa: E731
    made = []
    for chosen, measure in (([run for run in runs if not cold(run)], "warm: in order, with a memory"),
                            ([run for run in runs if cold(run)], "cold: windows from an empty context")):
        if chosen:
            made.append(table(["run", f"bits per byte, {measure}", "seconds of training", "steps", "bytes seen"],
                              [[run, *cells(results(o, read(run), run), "seconds", "steps", "bytes")] for run in chosen]))
    return "\n".join(made)


def curves(o, rows):
    """Training bits per byte over seconds; seeds of a row share a chart."""
    panels = []
    for row in rows:
        series = []
        for folder in (o.output / f"seed-{seed}" for seed in o.seeds.split()):
            for found in sorted((folder / row).glob("table*.json"))[:1]:
                line = json.loads(found.read_text())["rows"][0]
                steps = plot.training_lines(folder / row / line["run"])
                series.append(("ours", [s["step"] * line["seconds_per_iteration"] for s in steps], steps, 0, False))
            if (folder / f"{row}.peer").exists():
                steps = [line for line in plot.json_lines(folder / f"{row}.peer") if "step" in line]
                series.append(("PyTorch", [s["seconds"] for s in steps], steps, 1, True))
        drawn = [(name, xs, plot.smoothed([s["bits_per_byte"] for s in steps]), *rest) for name, xs, steps, *rest in series if xs]
        panels += [plot.panel(row, "seconds", drawn)] if drawn else []
    if panels:
        plot.write(o.output / "curves.svg", panels, columns=min(2, len(panels)))


def parser_of():
    parser = argparse.ArgumentParser(prog="run.py runs", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="table", required=True)
    rows, text = verbs.add_parser("rows"), verbs.add_parser("text")
    rows.add_argument("--data", type=pathlib.Path, required=True)
    rows.add_argument("--rows", default=" ".join(ROWS))
    text.add_argument("--text", type=pathlib.Path, required=True)
    text.add_argument("--runs", default=" ".join(["text", *(f"{s}{form}" for s in SYSTEMS for form in ("", "-house", "-peer"))]))
    text.add_argument("--ahead", type=int, default=0)
    text.add_argument("--set", default="")
    text.add_argument("--context", type=int, default=512)
    text.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    for each, seconds in ((rows, 300), (text, 480)):
        each.add_argument("--output", type=pathlib.Path, required=True)
        each.add_argument("--seconds", type=float, default=seconds)
        each.add_argument("--seeds", default="1")
        each.add_argument("--gpus", type=int, default=1)
        each.add_argument("--command", default="build/cuda/longstride")
    return parser


def main(arguments):
    parser = parser_of()
    o = parser.parse_args(arguments)
    names = (o.rows if o.table == "rows" else o.runs).split()
    for name in names:
        if not (name in ROWS if o.table == "rows" else name in PEERS or recipe_of(name).exists()):
            parser.error(f"there is no run '{name}'; see run.py runs --help")
    o.output = o.output.resolve()
    o.output.mkdir(parents=True, exist_ok=True)
    if o.table == "rows":
        failed = run_all(o, names, row_commands)
        printed = rows_table(o, names)
        curves(o, names)
    else:
        if not o.text.is_file():
            parser.error(f"argument --text: {o.text} is no file")
        o.text = o.text.resolve()
        if not (o.output / "text.h5").exists():
            command = [o.command, "prepare", "bytes", "--input", o.text, "--split", "0.9,0.05,0.05", "--output", o.output / "text.h5"]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        failed = run_all(o, names, text_commands)
        printed = text_tables(o, names)
    (o.output / "results.md").write_text(printed)
    print(printed, end="")
    return failed
