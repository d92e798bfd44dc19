"""Parity over 200 steps: the same initial weights, batches and schedule in Longstride and in PyTorch, and every step's loss.

    run.py parity --data DIR --output DIR [--families "enwik8 cifar10 imagenet64 audio transformer_xl"]
                  [--command build/cuda/longstride] [--device gpu] [--precisions "fp32 bf16"] [--set KEY=VALUE ...]

--data: a folder with text.h5, cifar10.h5, images.h5 and audio.h5 from `longstride prepare`. OUTPUT gets a JSON line per
comparison (results.jsonl), a plot of each and, with both precisions, one of all (parity.svg). Exits with 1 if one fails.
fp32: no TF32 anywhere, attention with plain products and softmax. The relative difference of every step's loss must be at most
--bound, 1e-4.
bf16: autocast with the residual stream and the logits in fp32. Weights are rounded to nearest, and in four more runs up or
down at random, with the seeds 1 to 4: these differ only in how they round. Our mean distance from them (root mean square over
all steps) must be at most the largest distance between two of them. (These distances are random: of three equal runs, the
first is farther from both others than they are from each other one time in three.)
transformer_xl: Hugging Face's TransfoXLLMHeadModel instead, in fp32 to 1e-5, twice, with weights copied in either direction.
Dropout must be 0 in the recipes, because the random numbers differ.
"""
import argparse
import itertools
import json
import math
import pathlib
import shutil
import subprocess

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import plot
from frame import command, text
from frame.optimizers import Adam
from frame.stepping import autocast
from frame.system import load
from frame.training import learning_rate

HERE = pathlib.Path(__file__).resolve().parent
FILES = {"enwik8": "text", "cifar10": "cifar10", "imagenet64": "images", "audio": "audio", "transformer_xl": "text"}
RUNS = {"fp32": ["fp32"], "bf16": ["bf16", "bf16:1", "bf16:2", "bf16:3", "bf16:4"]}


class StochasticRound(torch.autograd.Function):
    """To bf16, up or down with the probability that keeps the mean; the gradient passes through."""

    @staticmethod
    def forward(ctx, x, generator):
        bits = x.contiguous().view(torch.int32)
        noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=x.device, generator=generator)
        return ((bits + noise) & ~0xFFFF).view(torch.float32).bfloat16()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.float(), None


def train(loss_of, parameters, recipe, batches, device):
    """The loss of every step. loss_of(tokens, targets, starts)."""
    c = recipe["train"]
    if c["beta1"] != 0.9 or c.get("optimizer", "adam") != "adam" or c.get("schedule", "cosine") != "cosine":
        raise SystemExit("parity: the recipe must say Adam with a beta1 of 0.9, and the cosine schedule")
    rate, losses = torch.zeros((), device=device), []
    optimizer = Adam(None, rate, c["clip"], c["weight_decay"], c["beta2"], parameters, c["epsilon"])
    o = argparse.Namespace(lr=c["lr"], warmup=c["warmup"], schedule="cosine", floor=c.get("lr_floor", 0.0))
    source = text.Batches(batches, recipe["data"].get("order") == "streams", device)
    for step in range(len(batches)):
        rate.fill_(learning_rate(o, step, step / c["steps"]))
        loss = loss_of(*source.next())
        loss.backward()
        optimizer.step()
        optimizer.forget()
        losses.append(loss.detach())
    return torch.stack(losses).double().cpu().tolist()


def options_of(recipe, device, precision):
    """The sparse peer's, of a resolved recipe."""
    from systems.sparse import SYSTEM

    model, n = recipe["model"], recipe["data"]["context"]
    if model["dropout"] != 0 or model["rotary_base"] or model["query_key_norm"] or model["positions"] == "none":
        raise SystemExit("parity: takes the paper's model: no dropout, rotary_base or query_key_norm, and position tables")
    o = command.parser_of(SYSTEM, "time").parse_args(["--device", device, "--graph", "0", "--compile", "0"])
    settings = dict(context=n, batch=recipe["train"]["global_batch"], feed_forward=model["feed_forward_ratio"],
                    keys=model["key_ratio"], pattern=model["attention"], dtype=torch.float32, mixed=precision == "bf16",
                    exact_logits=True, scores="fp32", **{key: model[key] for key in ("layers", "width", "heads")})
    for name, value in settings.items():
        setattr(o, name, value)
    if model["positions"] == "data":
        i, side = torch.arange(n), math.isqrt(n // 3)
        o.positions = [(side, i // (3 * side)), (side, i // 3 % side), (3, i % 3)]
    from attention import blocked

    able = all(blocked.blocked(o.pattern, layer) for layer in range(o.layers))
    o.attention = "blocked" if able else "masked"
    return command.completed(SYSTEM, o)


def torch_run(folder, run, device):
    """Trains the peer on what `longstride export` wrote; "bf16:1" has a rounding seed."""
    from systems.sparse import SYSTEM

    precision, _, seed = run.partition(":")
    recipe = text.read_recipe((folder / "recipe.yaml").read_text())
    o = options_of(recipe, device, precision)
    model = SYSTEM.build(o)
    parameters = dict(model.named_parameters())
    load(SYSTEM.places(o, parameters), parameters, text.read_safetensors(folder / "initial.safetensors"))
    memories, generator = SYSTEM.memories(o, model, o.batch), torch.Generator(device).manual_seed(int(seed or 0))
    rounded = [name for name, p in parameters.items() if seed and p.ndim == 2 and not name.startswith(("emb", "positions"))]

    def loss_of(tokens, targets, starts):
        weights = {name: StochasticRound.apply(parameters[name], generator) for name in rounded}
        with autocast(o):
            return torch.func.functional_call(model, weights, (tokens, targets, memories))[0]

    plain = precision == "fp32" or device == "cpu"
    with sdpa_kernel(SDPBackend.MATH if plain else [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        losses = train(loss_of, parameters.values(), recipe, text.read_safetensors(folder / "batches.safetensors")["tokens"], device)
    said = {"torch": torch.__version__, "device": device, "run": run, "recipe": recipe["name"], "losses": losses}
    (folder / f"torch-{run.replace(':', '-')}.json").write_text(json.dumps(said))
    return losses


def rms(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


def compared(ours, theirs, precision, bound):
    """theirs: {run: losses}, of which those of `precision` count."""
    names = [name for name in theirs if name.startswith(precision) and (precision == "fp32" or ":" in name)]
    result = {"precision": precision, "steps": len(ours), "first": ours[0], "last": ours[-1],
              "their_last": [theirs[name][-1] for name in names]}
    if any(len(theirs[name]) != len(ours) for name in names):
        raise SystemExit(f"parity: ours has {len(ours)} steps, the peers {[len(theirs[name]) for name in names]}")
    if precision == "fp32":
        relative = [abs(a - b) / b for a, b in zip(ours, theirs["fp32"])]
        worst = max(relative)
        return {**result, "largest_relative": worst, "at_step": relative.index(worst) + 1, "holds": worst <= bound}
    result["to_seeds"] = [rms(ours, theirs[name]) for name in names]
    result["between_seeds"] = [rms(theirs[a], theirs[b]) for a, b in itertools.combinations(names, 2)]
    for control in [name for name in ("bf16", "fp32") if name in theirs]:
        result[f"to_{control}"] = rms(ours, theirs[control])
        result[f"seeds_to_{control}"] = [rms(theirs[name], theirs[control]) for name in names]
    return {**result, "holds": sum(result["to_seeds"]) / len(names) <= max(result["between_seeds"])}


def longstride(options, *arguments):
    words = [word for setting in options.set for word in ("--set", setting)]
    done = subprocess.run([str(word) for word in (options.command, *arguments, *words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")


def our_losses(options, settings, recipe, run, *more):
    shutil.rmtree(run, ignore_errors=True)
    longstride(options, "train", recipe, "--run", run, "--device", options.device, "--log-level", "warning", *settings, *more)
    return plot.losses_of_run(run)


def report(options, result):
    line = json.dumps({**result, "torch": torch.__version__, "device": options.device})
    print(line, flush=True)
    with (options.output / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    return result["holds"]


def family(options, name):
    recipe, at = HERE / f"recipes/parity/{name}.yaml", options.output / name
    settings = ["--set", f"data.path={options.data / FILES[name]}.h5"]
    longstride(options, "export", recipe, "--output", at, "--force", *settings)
    if name == "transformer_xl":
        return transformer_xl(options, recipe, at, settings)
    device, theirs, ours, held = "cpu" if options.device == "cpu" else "cuda", {}, {}, True
    for precision in options.precisions.split():
        ours[precision] = our_losses(options, [*settings, "--set", f"train.precision={precision}"], recipe, at / precision)
        theirs |= {run: torch_run(at, run, device) for run in RUNS[precision]}
        held = report(options, {"recipe": name, **compared(ours[precision], theirs, precision, options.bound)}) and held
        steps = list(range(1, len(ours[precision]) + 1))
        lines = {"ours": ours[precision], **{f"PyTorch, {run}": theirs[run] for run in RUNS[precision]}}
        series = [(label, steps, losses, i, i > 0) for i, (label, losses) in enumerate(lines.items())]
        plot.write(options.output / f"{name}-{precision}.svg",
                   [plot.panel(f"{name}, {precision}, nats per byte", "steps", series)], columns=1)
    if len(ours) == 2:
        options.panels.append(distances(name, ours, theirs))
    return held


def transformer_xl(options, recipe, at, settings):
    """Once from the weights of either side."""
    from systems.transfo_xl import TransfoXL

    resolved = text.read_recipe((at / "recipe.yaml").read_text())
    batches, held = text.read_safetensors(at / "batches.safetensors")["tokens"], True
    for weights in ("longstride", "transformers"):
        theirs, begin = TransfoXL(resolved["model"]), ()
        if weights == "longstride":
            theirs.load(text.read_safetensors(at / "initial.safetensors"))
        else:
            text.write_safetensors(at / "transfo_xl.safetensors", theirs.weights())
            begin = ("--from", at / "transfo_xl.safetensors")
        ours = our_losses(options, settings, recipe, at / f"from-{weights}", *begin)
        peer = train(lambda *batch: theirs.losses(*batch).mean(), theirs.parameters.values(), resolved, batches, "cpu")
        result = compared(ours, {"fp32": peer}, "fp32", min(options.bound, 1e-5))
        held = report(options, {"recipe": resolved["name"], "weights": weights, **result}) and held
    return held


def distances(name, ours, theirs):
    """How far losses are from PyTorch's in fp32; equal ones are drawn at 1e-9."""
    exact = theirs["fp32"]
    runs = [("PyTorch, bf16, weights rounded at random", theirs[run], 5, True) for run in theirs if ":" in run]
    runs += [("PyTorch, bf16", theirs["bf16"], 1, False), ("ours, bf16", ours["bf16"], 0, False),
             ("ours, fp32", ours["fp32"], 2, False)]
    steps = list(range(1, len(exact) + 1))
    return plot.panel(name, "steps", [(label, steps, [max(1e-9, abs(a - b) / b) for a, b in zip(losses, exact)], colour, dashed)
                                      for label, losses, colour, dashed in runs], log=True)


def main(arguments):
    parser = argparse.ArgumentParser(prog="run.py parity", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--families", default="enwik8 cifar10 imagenet64 audio")
    parser.add_argument("--precisions", default="fp32 bf16")
    parser.add_argument("--command", default="build/cuda/longstride")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--bound", type=float, default=1e-4)
    options = parser.parse_args(arguments)
    for name in options.families.split():
        if name not in FILES:
            parser.error(f"there is no family '{name}'; there are {', '.join(FILES)}")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    options.output.mkdir(parents=True, exist_ok=True)
    options.panels = []
    held = [family(options, name) for name in options.families.split()]
    if options.panels:
        plot.write(options.output / "parity.svg", options.panels, columns=min(2, len(options.panels)))
    return 0 if all(held) else 1
