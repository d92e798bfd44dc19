"""The PyTorch peers compute what tests/golden does, in all their forms, and those of the systems with distances and memory have
as many parameters as `longstride plan` prints for their recipes."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, command, need

need("torch")

import torch  # noqa: E402

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7):
    print(f"skipped: PyTorch {torch.__version__} has no block masks of any length; needs 2.7")
    sys.exit(77)

sys.path[:0] = [str(ROOT / "tests/peers"), str(ROOT / "tests/golden")]
import adagrad  # noqa: E402
import muon  # noqa: E402
from frame import check, command as peers, text, training  # noqa: E402
from frame.model import product  # noqa: E402
from frame.optimizers import Adagrad, newton_schulz  # noqa: E402
from frame.stepping import Step  # noqa: E402
from systems import adaptive_span, compressive, longformer, scan, sparse, transformer_xl  # noqa: E402

RUN = [sys.executable, str(ROOT / "tests/peers/run.py")]
SYSTEMS = {"transformer-xl": transformer_xl.SYSTEM, "adaptive": adaptive_span.SYSTEM, "longformer": longformer.SYSTEM,
           "compressive": compressive.SYSTEM}


def options(system, *arguments, verb="time"):
    return peers.parser_of(system, verb).parse_args(["--device", "cpu", "--attention", system.forms[0], *arguments])


class DecoderPeers(unittest.TestCase):
    def test_forms_agree_with_the_reference(self):
        for name, system in {**SYSTEMS, "sparse": sparse.SYSTEM, "scan": scan.SYSTEM}.items():
            with self.subTest(name):
                self.assertTrue(check.check(system, options(system, verb="check")))

    def test_parameters_are_those_of_the_recipe(self):
        for name, system in SYSTEMS.items():
            with self.subTest(name):
                planned = json.loads(command("plan", f"recipes/survey/text-8min-{name}.yaml", "--json", folder=ROOT))
                self.assertEqual(system.parameters, planned["parameters"])

    def test_scores_keep_what_bf16_would_round(self):
        o = options(SYSTEMS["transformer-xl"])
        a, b = (torch.randn(2, 64, 64).bfloat16() for _ in range(2))
        right, errors = a.double() @ b.double(), {}
        for o.scores in ("bf16", "fp32"):
            with torch.autocast("cpu", torch.bfloat16):
                errors[o.scores] = (product(o, a, b).double() - right).norm() / right.norm()
        self.assertLess(errors["fp32"], 1e-6)
        self.assertGreater(errors["bf16"], 1e-4)

    def test_a_cut_memory_changes_nothing_within_the_spans(self):
        """The lengths grow from 64 to all 200 positions, and the rows that they have in common stay."""
        system = SYSTEMS["adaptive"]
        sizes = ["--layers", "2", "--width", "16", "--heads", "2", "--inner", "32", "--segment", "8", "--span", "200",
                 "--ramp", "4", "--batch", "2", "--mean-span", "40"]
        steps = []
        for trim in "01":
            torch.manual_seed(1)
            o = peers.completed(system, options(system, *sizes, "--trim", trim))
            o.dtype = torch.float64
            model = system.build(o)
            steps.append(Step(system, o, model, None))
        batches = torch.randint(256, (9, 2, 8))
        losses, bits = [], []
        for number, step in enumerate(steps):
            for batch in batches[:6]:
                step.feed(batch, batch)
                step.gradients()
            for block in step.model.blocks:
                block.attention.span.data.fill_(100 / 200)
            self.assertEqual(system.must_change(step), number == 1)
            step = system.changed(step) if number == 1 else step
            for batch in batches[6:]:
                step.feed(batch, batch)
                step.gradients()
            losses.append(step.loss.item())
            kept = step.memories[0][0][:, -64:]
            self.assertEqual(step.memories[0][0].shape[1], [200, 192][number])
            steps[number] = kept
            step.o.eval_rows = 2
            nats, scored = training.streams(system, step.o, step.model, [batches.flatten()])
            self.assertEqual(scored, batches.numel())
            bits.append(nats)
        torch.testing.assert_close(steps[1], steps[0], rtol=1e-12, atol=1e-12)
        self.assertLess(abs(bits[1] - bits[0]), 1e-9)
        self.assertLess(abs(losses[1] - losses[0]), 1e-12)

    def test_adagrad_is_the_authors(self):
        model = torch.nn.Sequential()
        model.kv = torch.nn.Linear(3, 8, bias=False, dtype=torch.float64)
        ours = Adagrad(model, torch.tensor(0.1, dtype=torch.float64), clip=1e9, tensor_clip=0.7)
        theirs = [adagrad.Adagrad((4, 3), torch.float64, {"epsilon": 1e-10, "tensor_clip": 0.7}) for _ in range(2)]
        expected = model.kv.weight.detach().clone()
        for size in (0.01, 1.0, 3.0):
            gradient = size * torch.randn(8, 3, dtype=torch.float64)
            model.kv.weight.grad = gradient.clone()
            ours.step()
            expected -= torch.cat([part.moved(g, 0.1) for part, g in zip(theirs, gradient.chunk(2))])
        torch.testing.assert_close(model.kv.weight.detach(), expected, rtol=1e-9, atol=1e-9)

    def test_muon_moves_singular_values_as_the_reference_does(self):
        update = torch.randn(3, 8, 16, dtype=torch.float64)
        found = torch.linalg.svdvals(newton_schulz(update))
        expected = torch.stack([torch.linalg.svdvals(muon.newton_schulz(part / 1.02)) for part in update])
        self.assertLess((found - expected).abs().max(), 0.1)  # they divide by norms that differ by 2%
        self.assertLess(found.max(), 1.3)

    def test_muon_learns(self):
        o = options(sparse.SYSTEM, "--model", "text_8min", "--attention", "blocked", "--layers", "2")
        for name, value in sparse.SYSTEM.tiny[-1].items():
            setattr(o, name, value)
        o = peers.completed(sparse.SYSTEM, o)
        model, rate = sparse.SYSTEM.build(o), torch.tensor(0.02)
        step = Step(sparse.SYSTEM, o, model, sparse.SYSTEM.optimizer(o, model, rate))
        step.feed(*2 * [torch.arange(48).repeat(2, 1)])
        losses = []
        for _ in range(40):
            step.run()
            losses.append(step.loss.item())
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_training_learns_and_scores_every_byte_of_test(self):
        small = ["--layers", "1", "--width", "16", "--heads", "2", "--inner", "32", "--batch", "4", "--seconds", "2",
                 "--warmup", "5"]
        sizes = {"transformer-xl": ["--segment", "16", "--memory", "16"],
                 "adaptive": ["--segment", "16", "--span", "80", "--ramp", "4"],
                 "longformer": ["--context", "64", "--window", "16", "--dilation", "2", "--windows", "0"],
                 "compressive": ["--segment", "16", "--memory", "16", "--compressed", "4", "--micro", "2"]}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "text"
            file.write_bytes(b"the quick brown fox. " * 1000)
            scored = len(text.sequences(file, "test")[0])
            for name, system in SYSTEMS.items():
                said = []
                training.say = lambda o, **line: said.append(line)
                o = options(system, str(file), "--eval-rows", "3", "--eval-lead", "2", "--lr", "0.01",
                            *small, *sizes[name], verb="train")
                training.train(system, peers.completed(system, o))
                with self.subTest(name):
                    self.assertEqual(said[-1]["bytes_scored"], scored)
                    self.assertLess(said[-1]["bits_per_byte"], 6.5)

    def test_stages_are_tried_by_processes_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "text"
            file.write_bytes(b"the quick brown fox. " * 1000)
            said = subprocess.run(
                [*RUN, "train", "longformer", str(file), "--device", "cpu", "--attention", "chunks", "--seconds", "0.1", "--layers", "1", "--width", "16", "--heads", "2",
                 "--inner", "32", "--batch", "4", "--context", "64", "--window", "16", "--dilation", "2", "--ahead", "2"],
                capture_output=True, text=True, check=True).stdout.splitlines()
        said = [json.loads(line) for line in said]
        tried = {line["stage"]: line for line in said if "peak_GiB" in line and "stage" in line}
        self.assertEqual(sorted(tried), [0, 1, 2, 3, 4])
        self.assertEqual([tried[i]["segment"] for i in range(5)], [4, 8, 16, 32, 64])
        self.assertEqual([i for i in tried if "bytes_scored" in tried[i]], [4])
        self.assertIn("trained_seconds", said[-1])
        refused = subprocess.run([*RUN, "time", "longformer", "--ahead", "2"], capture_output=True, text=True)
        self.assertIn("--ahead is 2, but must be", refused.stderr)


if __name__ == "__main__":
    unittest.main()
