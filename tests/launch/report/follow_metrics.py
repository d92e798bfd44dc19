#!/usr/bin/env python3
"""launch/scripts/follow_metrics.py with stand-ins for wandb and mlflow, which write down how they are called.

    follow_metrics.py SCRIPT LONGSTRIDE
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT, LONGSTRIDE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])

STAND_IN = """
import json, os
def _write(*call):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")
"""
WANDB = STAND_IN + """
class _Run:
    def log(self, figures, step): _write("log", step, figures)
    def finish(self): _write("finish")
def init(project, name, config):
    _write("init", project, name, config)
    return _Run()
"""
MLFLOW = STAND_IN + """
def set_experiment(name): _write("experiment", name)
def start_run(run_name): _write("init", run_name)
def log_params(params):
    assert len(params) <= 100 and all(isinstance(value, str) for value in params.values())
    _write("params", params)
def set_tags(tags):
    assert all(isinstance(value, str) for value in tags.values())
    _write("tags", tags)
def log_metrics(figures, step): _write("log", step, figures)
def end_run(): _write("finish")
"""
RECIPE = """name: small
data: {kind: bytes, path: x.h5, context: 64}
model:
  kind: sparse_transformer
  layers: 1
  width: 16
  heads: 2
  attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 8, summary: 2}
train: {steps: 2, global_batch: 4, lr: 1.0e-3, warmup: 1, log_every: 1}
"""


def step_line(step, **more):
    return json.dumps({"step": step, "loss": 2.5, "lr": 1e-3, **more}) + "\n"


class FollowMetrics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.run_dir = self.dir / "run"
        self.run_dir.mkdir()
        self.metrics = self.run_dir / "metrics.jsonl"
        modules = self.dir / "modules"
        modules.mkdir()
        (modules / "wandb.py").write_text(WANDB)
        (modules / "mlflow.py").write_text(MLFLOW)
        self.environment = {**os.environ, "PYTHONPATH": str(modules), "CALLS": str(self.dir / "calls"),
                            "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2"}

    def command(self, *arguments):
        return [sys.executable, SCRIPT, *map(str, arguments)]

    def follow(self, *arguments, code=0):
        done = subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True,
                              timeout=60, cwd=self.dir)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def calls(self):
        path = self.dir / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logged(self):
        return [(call[1], sorted(call[2])) for call in self.calls() if call[0] == "log"]

    def wait_for(self, *steps):
        for _ in range(600):
            if [step for step, _ in self.logged()] == list(steps):
                return
            time.sleep(0.05)
        self.fail(f"logged {self.logged()}, not {steps}")

    def replace(self, text):  # as a resuming run does
        other = self.run_dir / "other"
        other.write_text(text)
        other.rename(self.metrics)

    def append(self, text):
        with self.metrics.open("a") as file:
            file.write(text)

    def test_a_trained_and_resumed_run_reaches_both_services(self):
        (self.dir / "r.yaml").write_text(RECIPE)
        (self.dir / "text.bin").write_bytes(bytes(97 + i * i % 23 for i in range(4000)))
        for arguments in ("prepare bytes --input text.bin --output x.h5", "train r.yaml --run trained",
                          "train r.yaml --run trained --resume-changed --set train.steps=4"):
            subprocess.run([LONGSTRIDE, *arguments.split()], cwd=self.dir, env=self.environment, check=True,
                           capture_output=True)
        self.follow("trained", "--to", "wandb", "--once", "--project", "p")
        calls = self.calls()
        self.assertEqual(calls[0][:3], ["init", "p", "trained"])
        self.assertIn("train r.yaml --run trained", calls[0][3]["command"])
        for key, value in {"name": "small", "train.lr": 1e-3, "train.steps": 4, "model.attention.stride": 8,
                           "data.cross_files": False}.items():
            self.assertEqual(calls[0][3][key], value, key)
        self.assertEqual(calls[-1], ["finish"])
        train = [call for call in calls if call[0] == "log" and "train/loss" in call[2]]
        self.assertEqual([call[1] for call in train], [1, 2, 3, 4])
        entries = [json.loads(line) for line in (self.dir / "trained/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([call[2]["train/mean_loss"] for call in train],
                         [entry["mean_loss"] for entry in entries if "lr" in entry])
        self.assertEqual([call[1] for call in calls if call[0] == "log" and "valid/bits_per_byte" in call[2]], [2, 4])
        times = [call[2]["time"] for call in train]
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(time.time() - times[-1]), 600)
        (self.dir / "calls").unlink()
        self.follow("trained", "--to", "mlflow", "--once", "--name", "n")
        self.assertEqual(self.calls()[:2], [["experiment", "longstride"], ["init", "n"]])
        self.assertEqual([call for call in self.calls() if call[0] == "log"],
                         [call for call in calls if call[0] == "log"])
        self.assertEqual(self.calls()[-1], ["finish"])

    def test_auxiliary_losses_have_their_names_in_tensorboard(self):
        self.append(step_line(1, auxiliary={"span": 0.5, "odd": "text"}))
        self.follow("run", "--to", "wandb", "--once")
        self.assertEqual([call[2] for call in self.calls() if call[0] == "log"],
                         [{"train/loss": 2.5, "train/lr": 1e-3, "train/auxiliary/span": 0.5}])

    def test_a_line_is_logged_once_it_is_whole_and_each_step_once(self):
        follower = subprocess.Popen(self.command("run", "--to", "wandb", "--interval", "0.05"), env=self.environment,
                                    cwd=self.dir)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        self.append(step_line(10) + step_line(20)[:12])
        self.wait_for(10)
        self.append(step_line(20)[12:] + step_line(30))
        self.wait_for(10, 20, 30)
        self.replace(step_line(10))  # resumed at step 10
        time.sleep(0.3)
        self.append(step_line(20) + step_line(30))
        self.append(step_line(40))
        self.wait_for(10, 20, 30, 40)
        self.replace(step_line(10) + step_line(20) + step_line(30) + step_line(40, skipped=1) + step_line(50))
        self.wait_for(10, 20, 30, 40, 50)
        follower.send_signal(signal.SIGTERM)
        self.assertEqual(follower.wait(timeout=30), 0)
        self.assertEqual(self.calls()[-1], ["finish"])

    def test_only_figures_of_whole_lines_are_logged(self):
        self.metrics.write_text(
            '{"step":0,"device":"GPU","planned_bytes":64}\n' + step_line(1, grad_norm=None, skipped=True)
            + 'no json\n[1]\n{"step":"2","lr":1}\n{"step":2}\n' + "[" * 100000 + "\n"
            + '{"step":3,"split":"valid","loss":NaN,"bytes":7,"time":5}\n' + step_line(4)[:-1])
        self.follow("run", "--to", "mlflow", "--once")
        self.assertEqual(self.logged(), [(0, ["memory/planned_bytes"]), (1, ["train/loss", "train/lr"]),
                                         (3, ["valid/bytes"])])

    def test_numbers_that_no_float_holds_are_left_out(self):
        digits = "9" * 400
        self.metrics.write_text(
            '{"step":1,"loss":' + digits + ',"lr":1}\n{"step":' + digits + ',"loss":1,"lr":1}\n'
            + '{"step":2,"loss":3,"lr":1,"auxiliary":{"a":-' + digits + '}}\n')
        (self.run_dir / "environment.json").write_text("[" * 100000)
        self.follow("run", "--to", "wandb", "--once")
        self.assertEqual([call[2] for call in self.calls() if call[0] == "log"],
                         [{"train/lr": 1}, {"train/loss": 3, "train/lr": 1}])

    def test_metrics_that_become_a_folder_end_it_with_a_sentence(self):
        self.append(step_line(1))
        follower = subprocess.Popen(self.command("run", "--to", "wandb", "--interval", "0.05"), env=self.environment,
                                    cwd=self.dir, stderr=subprocess.PIPE, text=True)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        self.wait_for(1)
        self.metrics.unlink()
        self.metrics.mkdir()
        self.assertEqual(follower.communicate(timeout=30)[1],
                         "longstride: run/metrics.jsonl: cannot be read: Is a directory\n")
        self.assertEqual(follower.returncode, 2)
        self.assertEqual(self.calls()[-1], ["finish"])

    def test_somebody_elses_run_leads_nowhere_else(self):
        secret = self.dir / "secret"
        secret.write_text(step_line(1))
        self.metrics.symlink_to(secret)
        self.assertEqual(self.follow("run", "--to", "wandb", "--once", code=2),
                         "longstride: run/metrics.jsonl: is a link, which is not followed; put the file itself there\n")
        self.metrics.unlink()
        os.mkfifo(self.run_dir / "environment.json")
        self.append(step_line(1))
        self.assertIn("environment.json: is not a regular file", self.follow("run", "--to", "wandb", "--once", code=2))
        (self.run_dir / "environment.json").unlink()
        for name in ("environment.json", "metrics.jsonl"):
            with open(self.run_dir / name, "ab") as file:
                file.truncate(6 << 30)
        self.assertIn("metrics.jsonl: has a line of more than 1048576 bytes",
                      self.follow("run", "--to", "wandb", "--once", code=2))
        self.assertEqual(self.logged(), [(1, ["train/loss", "train/lr"])])

    def test_mistakes_are_one_sentence(self):
        self.assertEqual(self.follow("none", "--to", "wandb", code=2),
                         "longstride: none: is not a directory; give the directory of a run\n")
        self.assertEqual(self.follow("run", "--to", "wandb", "--once", code=2),
                         "longstride: run: holds no metrics.jsonl; give the directory of a run that has trained\n")
        self.metrics.mkdir()
        self.assertEqual(self.follow("run", "--to", "wandb", code=2),
                         "longstride: run/metrics.jsonl: is a folder, not a file of metrics; give the directory of a "
                         "run\n")
        self.metrics.rmdir()
        self.metrics.write_text(step_line(1))
        (self.dir / "modules" / "wandb.py").write_text("raise ModuleNotFoundError(name='wandb')\n")
        self.assertEqual(self.follow("run", "--to", "wandb", "--once", code=2),
                         "longstride: the Python package wandb is not installed; run: pip install wandb\n")
        self.assertEqual(self.follow("run", "--to", "wandb", "--interval", "0", code=2),
                         "longstride: argument --interval: 0 is not from above 0 to 86400 seconds; see "
                         "follow_metrics.py --help\n")
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
