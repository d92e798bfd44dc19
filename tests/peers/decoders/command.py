"""The command line of the peers that train decoders, and their forms, of which each runs in a process of its own: one that
fails, or runs out of memory, does not harm the next."""
import argparse
import concurrent.futures
import copy
import json
import subprocess
import sys

import torch

from decoders import check, training
from decoders.stepping import Step
from torch_step import median_ms, peak_gib

OUT_OF_MEMORY, FAILED = 3, 4
COMMON = """
    --attention FORM|all        one form, or all, each in its own process; default: all, and the first with --train
    --batch B --micro B         sequences per step, and at once (default: all; after running out of memory, half)
    --scores bf16|fp32          what the forms with matrices round scores and their gradients to; default: bf16, which is
                                faster, and fp32 with --train
    --ckpt 0|1 --graph 0|1      recompute every block; one CUDA graph per step (default 1)
    --check                     on a CPU: compares losses and gradients with tests/golden/memory.py
    --train FILE --seconds S    trains on a file from `longstride prepare`, or on any file divided by --split, and scores
                                the test split; --lr, --dropout and other options are the recipe's by default
    --ahead N                   before training in stages, compiles the steps of N stages at once, each in a process of
                                its own, into the compiler's cache: their memory must fit together; default: 0
Prints a line of JSON per form: ms (the median step), tok_s and peak_GiB. Timing has no dropout unless --dropout asks.
"""


def shares(text):
    values = [float(part) for part in text.split(",")]
    if len(values) != 3 or abs(sum(values) - 1) > 1e-9:
        raise argparse.ArgumentTypeError("must be three numbers that add up to 1, such as 0.9,0.05,0.05")
    return values


def parser_of(system, documentation):
    parser = argparse.ArgumentParser(description=documentation + COMMON, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {**system.options, "micro": 0, "steps": 8, "graph": 1, "ckpt": 0, "seed": 1, "every": 100,
                        "eval_rows": 32, "eval_lead": 8, "windows": 96, "ahead": 0}.items():
        if isinstance(value, list):
            whole = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
            parser.add_argument(f"--{name}", type=whole, default=value, help=f"default {','.join(map(str, value))}")
        else:
            flag = "--" + name.replace("_", "-")
            parser.add_argument(flag, type=type(value), default=value, help=f"default {value}")
    for name, value in system.recipe.items():
        if name != "schedule":
            parser.add_argument(f"--{name}", type=float, help=f"default {value}")
    parser.add_argument("--schedule", choices=["cosine", "constant"], default=system.recipe["schedule"])
    parser.add_argument("--scores", choices=["bf16", "fp32"])
    parser.add_argument("--attention", choices=[*system.forms, "all"])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--train", metavar="FILE")
    parser.add_argument("--split", type=shares, default=[0.9, 0.05, 0.05])
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", type=int, help="default: 1 on a GPU")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stage", type=int, help=argparse.SUPPRESS)  # a child compiles it instead of training
    return parser


def completed(system, o):
    """Options with everything that follows from them."""
    o.model = system.name
    for name, value in {**system.recipe, **system.form}.items():
        if getattr(o, name, None) is None:
            setattr(o, name, value if name != "dropout" or o.train else 0.0)
    on_gpu = o.device.startswith("cuda")
    o.compile, o.graph = int(on_gpu) if o.compile is None else o.compile, o.graph if on_gpu else 0
    o.dtype = getattr(o, "dtype", torch.bfloat16 if on_gpu else torch.float32)
    o.scores = o.scores or ("fp32" if o.train else "bf16")
    o.micro = o.micro or o.batch
    if o.batch % o.micro:
        raise SystemExit(f"{system.name}: --micro {o.micro} must divide --batch {o.batch}")
    system.complete(o)
    return o


def time_steps(system, o):
    model = system.build(o)
    optimizer = system.optimizer(o, model, torch.zeros((), device=o.device))  # spans stay as they are
    step = Step(system, o, model, optimizer).random().capture()
    ms = median_ms(step.run, o.steps)
    training.say(o, ms=round(ms, 2), tok_s=round(o.batch * o.segment / ms * 1e3), peak_GiB=round(peak_gib(), 1),
                 batch=o.batch, micro=o.micro, segment=o.segment, memory=o.memory, ckpt=o.ckpt, graph=o.graph,
                 **system.report(model))


def ran_out_of_memory(error):
    """Also where a capture or a compiler fails for that reason."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def child(system, o):
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024
    torch.backends.cuda.matmul.allow_tf32 = True  # where autocast is off, factors come from bf16
    torch.manual_seed(o.seed)
    work = time_steps if not o.train else training.train if o.stage is None else training.try_stage
    try:
        work(system, completed(system, o))
    except Exception as error:  # of any kind: it is reported, and the next form runs
        if ran_out_of_memory(error):
            training.say(o, error="out of memory", batch=o.batch, micro=o.micro, ckpt=o.ckpt)
            return OUT_OF_MEMORY
        training.say(o, error=f"{type(error).__name__}: {error}"[:600], graph=o.graph)
        return FAILED
    return 0


def run_form(system, o, form):
    """0 if the form ran, after as many halvings of the micro-batch as its memory needs, and without a graph if it must."""
    micro, graph = o.micro or o.batch, o.graph
    while True:
        command = [sys.executable, *sys.argv, "--attention", form, "--micro", str(micro), "--graph", str(graph), "--child"]
        status = subprocess.run(command).returncode
        if status == OUT_OF_MEMORY and micro % 2 == 0:
            micro //= 2
        elif status == FAILED and graph and not o.train:
            graph = 0
        else:
            if status not in (0, OUT_OF_MEMORY, FAILED):
                print(json.dumps({"model": system.name, "attention": form, "error": f"ended with {status}"}), flush=True)
            return status


def compile_ahead(system, o, form):
    """A stage that does not compile here, for lack of memory say, is left to training."""
    stages = len(system.stages(completed(system, copy.copy(o))))
    if stages == 1:
        return
    command = [sys.executable, *sys.argv, "--attention", form, "--child", "--stage"]
    with concurrent.futures.ThreadPoolExecutor(o.ahead) as pool:
        tries = pool.map(lambda stage: subprocess.run([*command, str(stage)], stdout=subprocess.PIPE, text=True), range(stages))
        for done in tries:  # printed here, as lines of several processes might mix
            print(done.stdout, end="", flush=True)


def main(system, documentation):
    o = parser_of(system, documentation).parse_args()
    if o.check:
        sys.exit(0 if check.check(system, o) else 1)
    if o.child:
        sys.exit(child(system, o))
    if o.ahead < 0 or o.ahead > 0 and not o.train:
        raise SystemExit(f"{system.name}: --ahead is {o.ahead}, but must be at least 0, and 0 without --train")
    forms = [o.attention or system.forms[0]] if o.train else [o.attention]
    forms = system.forms if forms[0] in (None, "all") else forms
    if o.ahead > 0:
        for form in forms:
            compile_ahead(system, o, form)
    if not o.device.startswith("cuda") and o.attention != "all":
        o.attention = o.attention or system.forms[0]
        sys.exit(child(system, o))
    sys.exit(max([run_form(system, o, form) for form in forms], key=abs))
