"""Times training steps of Longstride and of the peers, in turn on one machine, and prints ratios.

    run.py steps [--only NAME[,NAME]] [--command build/cuda/longstride] [--device gpu] [--recompute "none block"] [--steps 6]
                 [--seconds 3] [--limit 400] [--attention FORM|all] [--set KEY=VALUE ...] [--no-peer] [--threads 2]

NAME: a key of CASES below; default: the published models on a GPU, small_* on a CPU. Both sides take the same batch, in one
piece, on random tokens, without dropout, on a GPU in bf16. Ours runs before and after the peer, to reveal a machine whose speed
changes: trust a ratio only where both agree. The peer's fastest form counts. --set overrides a key of our recipes, as in
--set train.residual=bf16, which is how the peers keep the residual stream. --limit: seconds that one run may take, including
compilation (200 and more for enwik8_fixed); for a run without a figure the table says why. --threads: of both, on a CPU.
--output keeps what every run printed: of ours also where its time goes, as `bench step` says.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECIPES = HERE.parents[1] / "recipes"
# name: (recipe, sequences per step, the peer's options)
PUBLISHED = {
    "enwik8_fixed": ("table1/enwik8-fixed", 8), "cifar_strided": ("table1/cifar10-strided", 32),
    "imagenet64": ("table1/imagenet64-strided", 8), "audio65k": ("table4/audio-65k", 1), "audio262k": ("table4/audio-262k", 1),
    "audio1m": ("table4/audio-1m", 1)}
CASES = {
    **{name: (RECIPES / f"{recipe}.yaml", batch, ["sparse", "--model", name]) for name, (recipe, batch) in PUBLISHED.items()},
    "text_8min": (RECIPES / "beyond/text-8min.yaml", 8, ["sparse", "--model", "text_8min"]),
    **{name: (RECIPES / f"survey/text-8min-{name.replace('_', '-')}.yaml", batch, [peer]) for name, batch, peer in (
        ("transformer_xl", 192, "transformer_xl"), ("compressive", 192, "compressive"), ("adaptive", 192, "adaptive_span"),
        ("longformer", 8, "longformer"))},
    **{name: (RECIPES / f"survey/text-8min-{name.replace('_', '-')}.yaml", 8, ["scan", "--model", name])
       for name in ("ssd", "gla", "gated_delta", "performer", "hybrid")},
    **{name: (RECIPES / f"encoders/{recipe}-base.yaml", 8, ["encoder", "--model", name.removesuffix("_base")])
       for name, recipe in (("longformer_base", "longformer-encoder"), ("bigbird_base", "bigbird-itc"))},
    **{f"small_{form}": (HERE / f"recipes/{form}.yaml", 4, ["sparse", "--model", f"small_{form}"]) for form in
       ("fixed", "strided", "dense")}}


def said(command, options, path):
    """Its last line or object of JSON, or a text that says why there is none."""
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(options.threads)} if options.device == "cpu" else {})}
    with open(path, "w") as out, open(f"{path}.error", "w") as error:
        run = subprocess.Popen([str(word) for word in command], stdout=out, stderr=error, env=environment, start_new_session=True)
        try:
            status = f"ended with {run.wait(options.limit)}"
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # with the processes of its forms
            run.wait()
            status = f"took more than {options.limit:g} s"
    text = pathlib.Path(path).read_text()
    lines = [line for line in text.splitlines() if line.startswith('{"model"')] or [text]
    try:
        found = [json.loads(line) for line in lines]
        able = [line for line in found if "error" not in line]
        return min(able, key=lambda line: line.get("ms", 0)) if able else found[-1]["error"]
    except ValueError:
        why = (text + pathlib.Path(f"{path}.error").read_text()).strip().splitlines()
        return " / ".join([*why[-2:], status])[-160:]


def ours(options, name, policy, path):
    recipe, batch, _ = CASES[name]
    settings = {"train.global_batch": batch, "train.micro_batch": batch, "model.recompute": policy, "model.dropout": 0}
    if "embedding_dropout" in pathlib.Path(recipe).read_text():
        settings["model.embedding_dropout"] = 0
    words = [f"{key}={value}" for key, value in settings.items()] + options.set
    command = [options.command, "bench", "step", recipe, "--steps", options.steps, "--seconds", options.seconds, "--json",
               "--device", options.device]
    return said(command + [word for setting in words for word in ("--set", setting)], options, path)


def theirs(options, name, policy, path):
    if options.no_peer:
        return "not run"
    form = ["--attention", options.attention] if options.attention else []
    device = ["--device", "cpu"] if options.device == "cpu" else []
    compiled = [["--compile", "0"], ["--compile", "1"]] if device else [[]]
    _, batch, peer = CASES[name]
    found = [said([sys.executable, HERE / "run.py", "time", *peer, "--steps", options.steps, "--batch", batch, "--ckpt",
                   int(policy != "none"), *form, *device, *more], options, f"{path}{number}") for number, more in enumerate(compiled)]
    return min(found, key=lambda line: line["ms"] if isinstance(line, dict) else float("inf"))


def row_of(name, policy, before, peer, after):
    ran, peer_ran = [side for side in (before, after) if isinstance(side, dict)], isinstance(peer, dict)
    rate = min((side["tokens_per_second"] for side in ran), default=None)
    cells = [
        name, policy,
        ", ".join(f'{side["tokens_per_second"]:,.0f}' for side in ran) or before,
        f'{peer["tok_s"]:,} ({peer["attention"]}{", compiled" if peer["compile"] else ""})' if peer_ran else peer,
        f'{rate / peer["tok_s"]:.2f}' if ran and peer_ran else "",
        f'{before["planned_bytes"] / 2**30:.1f}' if ran and ran[0] is before else "",
        f'{peer["peak_GiB"]:.1f}' if peer_ran else "",
        f'{peer["joules"]:.1f}' if peer_ran and peer["joules"] else "",
        f'{100 * ran[0]["busy"]:.2f}%' if ran and "busy" in ran[0] else "",
    ]
    return f'| {" | ".join(cells)} |'


def main(arguments):
    parser = argparse.ArgumentParser(prog="run.py steps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--command", default="build/cuda/longstride")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--recompute")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--limit", type=float, default=400)
    parser.add_argument("--attention")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args(arguments)
    usual = PUBLISHED if options.device == "gpu" else [name for name in CASES if name.startswith("small")]
    names = options.only.split(",") if options.only else usual
    if wrong := [name for name in names if name not in CASES]:
        parser.error(f"there is no case '{wrong[0]}'; there are {', '.join(CASES)}")
    if not os.access(options.command, os.X_OK):
        parser.error(f"no program at {options.command}; build it or give --command")
    policies = (options.recompute or ("none" if options.device == "cpu" else "none block")).split()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = options.output or pathlib.Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        for name, policy in ((name, policy) for name in names for policy in policies):
            at = f"{work}/{name}.{policy}"
            before, peer = ours(options, name, policy, f"{at}.ours"), theirs(options, name, policy, f"{at}.peer")
            after = ours(options, name, policy, f"{at}.again") if isinstance(peer, dict) else before
            rows.append(row_of(name, policy, before, peer, after))
            print(f"done: {name}, recompute {policy}", file=sys.stderr)
    print("| model | recompute | ours, tokens/s | peer, tokens/s | ratio | ours, GiB | peer, GiB | peer, J | busy |\n"
          "|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    return 0
