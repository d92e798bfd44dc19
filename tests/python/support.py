"""What the tests of launch/python share: the package on the path, modules that may be absent, and small runs."""
import contextlib
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
DEVICE = os.environ.get("LONGSTRIDE_TEST_DEVICE", "cpu").replace("gpu", "cuda")  # where PyTorch computes
sys.path[:0] = [str(ROOT / "launch" / "python"), str(ROOT / "tests" / "golden")]
sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"  # small tensors; on a busy machine threads wait for each other


def need(*modules):
    """Ends the test as skipped if this Python lacks one of them."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; choose another with -DLONGSTRIDE_PYTHON")
        sys.exit(SKIPPED)


def need_kernels():
    """Ends the test as skipped if the library of kernels cannot be loaded."""
    from longstride.kernels import Kernels
    try:
        Kernels(strict=True)
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)


def command(*arguments, folder, fails=False):
    """Runs `longstride` on the CPU and returns what it printed: its output, or what it says when it must fail."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run([os.environ["LONGSTRIDE_COMMAND"], *map(str, arguments)], cwd=folder, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != (2 if fails else 0):
        raise AssertionError(f"longstride {' '.join(map(str, arguments))}: {done.stderr.decode(errors='replace')}")
    return done.stderr.decode() if fails else done.stdout


def figure(run, *options, folder):
    return json.loads(command("eval", run, "--device", "cpu", "--json", *options, folder=folder))["bits_per_byte"]


def noise(count, seed=1):
    """Bytes that a model can learn something of: a slow wave, and a congruential generator's high bits."""
    out = bytearray()
    for i in range(count):
        seed = (seed * 1103515245 + 12345) % (1 << 31)
        out.append(int((0.5 + 0.4 * math.sin(i / 9) + 0.1 * seed / (1 << 31)) * 255))
    return bytes(out)


def write_dataset(path, kind, splits, boundaries=None, **attributes):
    """A dataset as other programs may write it. datasets/dataset.h has the format."""
    import h5py
    with h5py.File(path, "w") as file:
        file.attrs.update(kind=kind, format_version=1, **attributes)
        for name, data in splits.items():
            file.create_dataset(name, data=data)
            if boundaries:
                file.create_dataset(f"{name}_boundaries", data=boundaries[name])


TRAIN = {"steps": 12, "warmup": 2, "global_batch": 2, "lr": 0.01, "checkpoint_every": 4, "evaluate_every": 4}


def write_recipe(path, data, model, objective=None, **train):
    """JSON is YAML."""
    model = {"kind": "decoder", "layers": 2, "width": 24, "heads": 2, **model}
    recipe = {"name": "small", "data": data, "model": model, "train": {**TRAIN, **train}}
    path.write_text(json.dumps(recipe if objective is None else {**recipe, "objective": objective}))


@contextlib.contextmanager
def temporary_folder():
    with tempfile.TemporaryDirectory(prefix="longstride-test-") as folder:
        yield pathlib.Path(folder)


TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: {kind}
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: {metric}
"""


def harness_scores(folder, saved, kind, metric, texts, **arguments):
    """What lm-evaluation-harness makes of some texts by the model in folder/saved: figures, and the texts' scores."""
    import numpy as np
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    name = f"rows_{kind}_{len(texts)}"
    tasks = folder / "tasks"
    tasks.mkdir(exist_ok=True)
    file = tasks / f"{name}.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tasks / f"{name}.yaml").write_text(TASK.format(name=name, file=file, kind=kind, metric=metric))
    given = {"pretrained": str(folder / saved), "trust_remote_code": True, "dtype": "float32", **arguments}
    found = simple_evaluate(model="hf", model_args=given, tasks=[name], device="cpu", batch_size=4,
                            task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
                            log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"][name], key=lambda sample: sample["doc_id"])
    return found["results"][name], [np.ravel(sample["filtered_resps"][0])[0] for sample in samples]
