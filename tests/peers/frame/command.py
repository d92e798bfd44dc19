"""The options of `time`, `train` and `check`, and their forms, of which each runs in a process of its own: one that fails, or
runs out of memory, does not harm the next."""
import argparse
import concurrent.futures
import copy
import json
import pathlib
import subprocess
import sys

import torch

from frame import training
from frame.model import count
from frame.stepping import Step
from frame.timing import peak_gib, timed

RUN = str(pathlib.Path(__file__).resolve().parents[1] / "run.py")
OUT_OF_MEMORY, FAILED = 3, 4
COMMON = """
Options of all peers:
    --attention FORM|all        one form, or all, each in its own process; default: all, and the first for `train`
    --batch B --micro B         sequences per step, and at once (default: all; after running out of memory, half)
    --scores bf16|fp32          what the forms with matrices round scores and their gradients to; default: bf16, which is
                                faster, and fp32 for `train`
    --ckpt 0|1 --graph 0|1      recompute every block; one CUDA graph per step (default 1)

time: prints a line of JSON per form: ms (the median of --steps steps), fastest_ms, cpu_ms, joules of a step if the card
counts them (worth reading after seconds: --steps 40), tok_s and peak_GiB. There is no dropout unless --dropout asks.

check: compares losses and gradients with tests/golden on a CPU.

train FILE: trains for --seconds on a file from `longstride prepare`, or on any file divided by --split, and scores --score, a
split; --lr, --dropout and other options are the recipe's by default. --ahead N: before training in stages, compiles the steps
of N stages at once, each in a process of its own, into the compiler's cache: their memory must fit together; default: 0.
"""


def shares(text):
    values = [float(part) for part in text.split(",")]
    if len(values) != 3 or abs(sum(values) - 1) > 1e-9:
        raise argparse.ArgumentTypeError("must be three numbers that add up to 1, such as 0.9,0.05,0.05")
    return values


def parser_of(system, verb):
    parser = argparse.ArgumentParser(prog=f"run.py {verb} {system.name}", description=sys.modules[system.__module__].__doc__ + COMMON,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument("--schedule", choices=["cosine", "constant"], default=system.recipe.get("schedule"))
    parser.add_argument("--scores", choices=["bf16", "fp32"])
    parser.add_argument("--attention", choices=[*system.forms, "all"])
    parser.add_argument("--split", type=shares, default=[0.9, 0.05, 0.05])
    parser.add_argument("--across", action="store_true", help="windows may reach from one file of the data into the next")
    parser.add_argument("--score", choices=["valid", "test"], default="test")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", type=int, help="default: 1 on a GPU")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stage", type=int, help=argparse.SUPPRESS)  # a child compiles it instead of training
    if verb == "train":
        parser.add_argument("train", metavar="FILE")
    parser.set_defaults(train=None, verb=verb)
    return parser


def completed(system, o):
    """Options with everything that follows from them."""
    o.model_name = system.name
    for name, value in {"beta2": 0.999, **system.recipe, **system.form}.items():
        if getattr(o, name, None) is None:
            setattr(o, name, value if name != "dropout" or o.train else 0.0)
    on_gpu = o.device.startswith("cuda")
    o.compile, o.graph = int(on_gpu) if o.compile is None else o.compile, o.graph if on_gpu else 0
    o.dtype = getattr(o, "dtype", torch.bfloat16 if on_gpu else torch.float32)
    o.mixed = getattr(o, "mixed", o.dtype == torch.bfloat16)
    o.scores = o.scores or ("fp32" if o.train else "bf16")
    system.complete(o)
    o.micro = o.micro or o.batch
    if o.batch % o.micro:
        raise SystemExit(f"{system.name}: --micro {o.micro} must divide --batch {o.batch}")
    return o


def time_steps(system, o):
    model = system.build(o)
    optimizer = system.optimizer(o, model, torch.zeros((), device=o.device))  # spans stay as they are
    step = Step(system, o, model, optimizer).random().capture()
    spent = timed(step.run, o.steps)
    figures = {name: value if value is None else round(value, 3) for name, value in spent.items()}
    training.say(o, **figures, tok_s=round(o.batch * o.segment / spent["ms"] * 1e3), peak_GiB=round(peak_gib(), 2),
                 batch=o.batch, micro=o.micro, segment=o.segment, memory=o.memory, ckpt=o.ckpt, graph=o.graph,
                 compile=o.compile, parameters=count(model), torch=torch.__version__, **system.report(model))


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


def again(*more):
    """The command line of a process of its own."""
    return [sys.executable, RUN, *sys.argv[1:], *more, "--child"]


def run_form(system, o, form):
    """0 if the form ran, after as many halvings of the micro-batch as its memory needs, and without a graph if it must."""
    micro, graph = o.micro or completed(system, copy.copy(o)).batch, o.graph
    while True:
        status = subprocess.run(again("--attention", form, "--micro", str(micro), "--graph", str(graph))).returncode
        if status == OUT_OF_MEMORY and micro % 2 == 0:
            micro //= 2
        elif status == FAILED and graph and not o.train and o.device.startswith("cuda"):
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
    with concurrent.futures.ThreadPoolExecutor(o.ahead) as pool:
        tries = pool.map(lambda stage: subprocess.run(again("--attention", form, "--stage", str(stage)),
                                                      stdout=subprocess.PIPE, text=True), range(stages))
        for done in tries:  # printed here, as lines of several processes might mix
            print(done.stdout, end="", flush=True)


def main(verb, system, arguments):
    o = parser_of(system, verb).parse_args(arguments)
    if verb == "check":
        from frame.check import check

        return 0 if check(system, o) else 1
    if o.child:
        return child(system, o)
    if o.ahead < 0 or o.ahead > 0 and not o.train:
        raise SystemExit(f"{system.name}: --ahead is {o.ahead}, but must be at least 0, and 0 without `train`")
    able = system.forms_of(completed(system, copy.copy(o)))
    forms = able if o.attention == "all" or not o.attention and not o.train else [o.attention or able[0]]
    for form in forms if o.ahead else []:
        compile_ahead(system, o, form)
    if len(forms) == 1 and not o.device.startswith("cuda"):
        o.attention = forms[0]
        return child(system, o)
    return max((run_form(system, o, form) for form in forms), key=abs)
