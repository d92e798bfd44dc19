#!/usr/bin/env python3
"""Does the work of tests/mutants.sh; see there."""
import argparse
import dataclasses
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = sorted((ROOT / "tests" / "mutants").glob("*.txt"))
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
BUILD = TREE / "build" / "test"

RANKS, RESUMED = "distributed.ranks_2", "distributed.training_sigterm"
# The tests of a room; the first matching folder or file counts.
OWN = (
    ("kernels/adam", ("test_optim",)),
    ("kernels/muon", ("test_optim",)),
    ("kernels/adagrad", ("test_optim",)),
    ("kernels/adafactor", ("test_optim", "test_models")),
    ("kernels/attention/sm90", ("test_kernels", "test_emulated", "test_emulated_slow")),
    ("kernels/attention/portable", ("test_emulated",)),
    ("kernels/distance_attention", ("test_kernels", "test_ops", "test_emulated", "test_emulated_slow")),
    ("kernels/features", ("test_kernels", "test_ops", "test_emulated")),
    ("kernels/scan", ("test_kernels", "test_ops", "test_emulated")),
    ("kernels/attention/pattern/plan.cpp", ("test_kernels", "test_ops")),
    ("kernels/attention", ("test_kernels",)),
    ("kernels/embedding", ("test_ops", "test_emulated")),
    ("kernels/global_rows", ("test_layers", "test_emulated")),
    ("kernels", ("test_kernels", "test_ops")),
    ("framework/core/parameters.cpp", ("test_core", "test_models", RANKS)),
    ("framework/core", ("test_core",)),
    ("framework/ops", ("test_ops",)),
    ("framework/layers", ("test_layers", "test_models")),
    ("framework/mixers/scan", ("test_mixers", "test_models", RANKS)),
    ("framework/mixers", ("test_mixers", "test_models")),
    ("framework/models/decoder/schema.cpp", ("test_models", "test_launch")),
    ("framework/models", ("test_models",)),
    ("framework/optim", ("test_optim", "test_models")),
    ("framework/comm/mpi.cpp", (RANKS,)),
    ("framework/comm", ("test_comm",)),
    ("framework/train/ranks", (RANKS,)),
    ("framework/train/trainer.cpp", ("test_train", RESUMED, "test_objectives", "test_launch")),
    ("framework/train/attention_maps.cpp", ("test_train", "test_launch")),
    ("framework/train", ("test_train",)),
    ("datasets/objectives", ("test_datasets", "test_objectives")),
    ("datasets", ("test_datasets",)),
    ("launch", ("test_launch",)),
)
OWN_TESTS, ALL = "its room's tests", "all fast tests"
SECONDS = 900  # a test that takes longer hangs


@dataclasses.dataclass
class Mutant:
    number: int
    file: str
    why: str
    old: str = ""
    new: str = ""

    def key(self):
        return hashlib.sha256("\0".join((self.file, self.old, self.new)).encode()).hexdigest()

    def own_tests(self):
        return next(tests for folder, tests in OWN if f"{self.file}/".startswith(folder + "/"))


def read_list():
    """Blocks of "FILE: why it is wrong", the old lines after "- " and the new ones after "+ "; # begins a comment."""
    mutants, parts = [], {"-": [], "+": []}

    def close():
        if mutants:
            mutants[-1].old, mutants[-1].new = ("\n".join(parts[side]) for side in "-+")
            if not mutants[-1].old:
                sys.exit(f"{mutants[-1].file}, {mutants[-1].why}: has no old text")
        parts["-"], parts["+"] = [], []

    for line in (line for path in LISTS for line in path.read_text().splitlines()):
        if line[:2] in ("- ", "+ ", "-", "+"):
            parts[line[0]].append(line[2:])
        elif line and not line.startswith("#"):
            close()
            file, why = line.split(": ", 1)
            mutants.append(Mutant(len(mutants) + 1, file, why))
    close()
    return mutants


def problem_of(mutant):
    path = ROOT / mutant.file
    if not path.exists():
        return "there is no such file"
    times = path.read_text().count(mutant.old)
    return "" if times == 1 else f"the old text occurs {times} times: {mutant.old.splitlines()[0]!r}"


def mirror():
    """Makes TREE equal to the working tree, and returns a checksum of it all."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-coz", "--exclude-standard"], check=True, capture_output=True)
    files = sorted(name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())
    whole = hashlib.sha256()
    for name in files:
        content = (ROOT / name).read_bytes()
        if not name.startswith("tests/mutants"):
            whole.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        copy = TREE / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
    for path in list(TREE.rglob("*")):
        inside = path.relative_to(TREE)
        if inside.parts[0] != "build" and path.is_file() and str(inside) not in set(files):
            path.unlink()
    return whole.hexdigest()


def run(command):
    """Exit code and output; a command that hangs has failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, cwd=BUILD)
    except subprocess.TimeoutExpired as stopped:
        return 1, (stopped.stdout or b"").decode(errors="replace") + "\nhangs"
    return done.returncode, done.stdout.decode(errors="replace")


def build(*targets):
    code, output = run(["cmake", "--build", BUILD, "-j2", "--target", *targets])
    return "" if code == 0 else output


def first_failure(tests):
    """The first test that fails, or nothing."""
    if tests in (ALL, RANKS, RESUMED):
        which = ["-L", "fast", "-j2"] if tests == ALL else ["-R", f"^{tests}$"]
        code, output = run(["ctest", *which, "--stop-on-failure", "--timeout", "300"])
        failed = re.findall(r"Test +#\d+: (\S+) .*\*\*\*", output)
    else:
        code, output = run([BUILD / "tests" / tests, "--gtest_fail_fast", "--gtest_brief=1"])
        failed = re.findall(r"^\[  FAILED  \] ([^ ,]+)", output, re.MULTILINE)
    return (failed[0] if failed else f"{tests}, exit code {code}") if code != 0 else ""


def targets_of(tests):
    return {ALL: ("longstride", "fast_tests"), RANKS: ("test_distributed",), RESUMED: ("longstride",)}.get(tests, (tests,))


class Runner:
    def __init__(self, again):
        self.file = WORK / "results.json"
        self.results = json.loads(self.file.read_text()) if self.file.exists() and not again else {}
        TREE.mkdir(parents=True, exist_ok=True)
        self.tree = mirror()
        self.sound = set()  # tests that pass without a mutant
        BUILD.mkdir(parents=True, exist_ok=True)
        code, output = run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLONGSTRIDE_TESTS=ON",
                            "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON", f"-DLONGSTRIDE_SHARED_DATA={ROOT.parent}/shared/data",
                            *(["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else [])])
        if code != 0:
            sys.exit(output)

    def known(self, mutant, stage):
        """Its earlier result, if that is still valid."""
        found = self.results.get(mutant.key(), {})
        if found.get("killed_by"):
            return found if found["content"] == self.content(mutant) else None
        return found if found and found["tree"] == self.tree and stage in found["stages"] else None

    def content(self, mutant):
        return hashlib.sha256((ROOT / mutant.file).read_bytes()).hexdigest()

    def require_sound(self, tests):
        if tests in self.sound:
            return
        if wrong := build(*targets_of(tests)) or first_failure(tests):
            sys.exit(f"{tests} fail without any change:\n{wrong[-2000:]}")
        self.sound.add(tests)

    def attempt(self, mutant, stage):
        """What killed it, "" if nothing did, None if it does not compile."""
        path = TREE / mutant.file
        original = path.read_text()
        for tests in (ALL,) if stage == ALL else mutant.own_tests():
            self.require_sound(tests)
            try:
                path.write_text(original.replace(mutant.old, mutant.new))
                if build(*targets_of(tests)):
                    return None
                killer = first_failure(tests)
            finally:
                path.write_text(original)
            if killer:
                return killer
        return ""

    def try_out(self, mutant, stage):
        found = self.known(mutant, stage)
        if found is None:
            began = time.time()
            killer = self.attempt(mutant, stage)
            found = {"killed_by": killer, "stages": [OWN_TESTS, stage], "seconds": round(time.time() - began), "tree": self.tree,
                     "content": self.content(mutant)}
            self.results[mutant.key()] = found
            self.file.write_text(json.dumps(self.results, indent=1))
        killer = found["killed_by"]
        what = "does not compile" if killer is None else f"killed by {killer}" if killer else f"survives {stage}"
        print(f"{mutant.number:4} {mutant.file}: {mutant.why}: {what}, {found['seconds']} s", flush=True)
        return killer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--room", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("numbers", type=int, nargs="*", metavar="NUMBER")
    options = parser.parse_args()
    chosen = [m for m in read_list() if m.file.startswith(options.room) and (not options.numbers or m.number in options.numbers)]
    if not chosen:
        parser.error("no mutant is chosen")
    wrong = [f"{m.number} {m.file}, {m.why}: {problem_of(m)}" for m in chosen if problem_of(m)]
    if options.list:
        for m in chosen:
            print(f"{m.number:4} {m.file}: {m.why}")
    if wrong:
        sys.exit("\n".join(wrong))
    if options.list:
        return 0
    runner, broken = Runner(options.again), []
    survivors = chosen
    for stage in (OWN_TESTS,) if options.quick else (OWN_TESTS, ALL):
        verdicts = [(m, runner.try_out(m, stage)) for m in survivors]
        broken += [m for m, killer in verdicts if killer is None]
        survivors = [m for m, killer in verdicts if killer == ""]
    print(f"{len(chosen)} mutants: {len(survivors)} survive, {len(broken)} do not compile")
    for m in survivors:
        print(f"survives: {m.number} {m.file}: {m.why}")
    return 1 if survivors or broken else 0


if __name__ == "__main__":
    sys.exit(main())
