"""Layers of other libraries in place of our scans, with copied weights: the same outputs, and the same losses of 200 steps in
fp32. Mamba-2's and Qwen3-Next's layers are those of transformers, the Performer's attention is performer-pytorch's.

    scan_peers_test.py transformers|performer_pytorch
"""
import json
import pathlib
import sys
import tempfile
import unittest

from support import ROOT, command, need

PACKAGE = sys.argv.pop()
need("torch", "safetensors", "numpy", PACKAGE)

import torch  # noqa: E402
from adam import train  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from scan import ScanReference, projection  # noqa: E402

STEPS, BOUND = 200, 1e-4
PLAIN = {"decay": "head", "convolution": 4}


class Peer(ScanReference):
    """The decoder of tests/golden whose layers are `layer`'s of transformers."""

    def attend(self, p, x, layer):
        name = f"layers.{layer}.attention."
        own = {key.removeprefix(name): value for key, value in p.items() if key.startswith(name)}
        module, weights = self.layer_of(own, self.form(layer))
        return torch.func.functional_call(module, weights, (x,))

    def parts(self, own, form):
        """Rows of queries, keys and values, and the same parts of the convolution."""
        sizes = 2 * [form["key_heads"] * form["key_size"]] + [self.heads * form["value_size"]]
        return own["query_key_value.weight"].split(sizes), own["convolution.weight"].split(sizes), sizes


class Mamba2(Peer):
    entry_of_layer = {**PLAIN, "form": "gated", "convolution_bias": True, "time_step": True, "skip": True,
                      "norm": "gated_rms", "key_heads": 2, "key_size": 24, "value_size": 20}

    def layer_of(self, own, form):
        from transformers import Mamba2Config
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

        if not hasattr(self, "module"):
            config = Mamba2Config(
                hidden_size=self.width, num_heads=self.heads, head_dim=form["value_size"], state_size=form["key_size"],
                expand=self.heads * form["value_size"] // self.width, n_groups=form["key_heads"], chunk_size=16,
                conv_kernel=form["convolution"], use_bias=False, use_conv_bias=True, layer_norm_epsilon=1e-6,
                num_hidden_layers=1)
            self.module = Mamba2Mixer(config, 0)
        (c, b, x), taps, sizes = self.parts(own, form)
        bias = own["convolution.bias"].split(sizes)
        return self.module, {
            "in_proj.weight": torch.cat([own["gate.weight"], x, b, c, own["decay.weight"]]),
            "conv1d.weight": torch.cat(taps[::-1])[:, None], "conv1d.bias": torch.cat(bias[::-1]),
            "A_log": own["decay_rate"], "dt_bias": own["decay_bias"], "D": own["skip"],
            "norm.weight": own["norm.weight"], "out_proj.weight": own["output.weight"]}


class Qwen3Next(Peer):
    entry_of_layer = {**PLAIN, "form": "delta", "key_heads": 2, "key_size": 16, "value_size": 12}

    def layer_of(self, own, form):
        from transformers import Qwen3NextConfig
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

        shared = form["key_heads"]
        if not hasattr(self, "module"):
            config = Qwen3NextConfig(
                hidden_size=self.width, linear_num_value_heads=self.heads, linear_num_key_heads=shared,
                linear_key_head_dim=form["key_size"], linear_value_head_dim=form["value_size"],
                linear_conv_kernel_dim=form["convolution"], rms_norm_eps=1e-6, num_hidden_layers=1)
            self.module = Qwen3NextGatedDeltaNet(config, 0)
        rows, taps, _ = self.parts(own, form)
        by_group = lambda *maps: torch.cat([w.reshape(shared, -1, self.width) for w in maps], 1).reshape(-1, self.width)
        return self.module, {
            "in_proj_qkvz.weight": by_group(*rows, own["gate.weight"]),
            "in_proj_ba.weight": by_group(own["beta.weight"], own["decay.weight"]),
            "conv1d.weight": torch.cat(taps)[:, None], "A_log": own["decay_rate"], "dt_bias": own["decay_bias"],
            "norm.weight": own["norm.weight"], "out_proj.weight": own["output.weight"]}


class Performer(ScanReference):
    """Features are given; what their authors add inside, and to the denominator, is set to 0."""
    entry_of_layer = {"features": "softmax", "count": 40}

    def attend(self, p, x, layer):
        from performer_pytorch.performer_pytorch import causal_linear_attention_noncuda, generalized_kernel, softmax_kernel

        form, name = self.form(layer), f"layers.{layer}.attention"
        batch, n, _ = x.shape
        q, k, v = self.linear(p, name + ".query_key_value", x).reshape(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        drawn = projection(layer, form["count"], q.shape[-1]).to(x.dtype)
        if form["features"] == "softmax":
            q, k = (softmax_kernel(y, projection_matrix=drawn, is_query=y is q, eps=0) for y in (q, k))
        else:
            q, k = (generalized_kernel(y, projection_matrix=drawn) for y in (q, k))
        o = causal_linear_attention_noncuda(q, k, v, eps=0)
        return self.linear(p, name + ".output", o.transpose(1, 2).reshape(batch, n, -1))


class ReluPerformer(Performer):
    entry_of_layer = {"features": "relu", "count": 40}


PEERS = {"transformers": (Mamba2, Qwen3Next), "performer_pytorch": (Performer, ReluPerformer)}


def recipe_of(peer, path):
    model = {"kind": "decoder", "layers": 2, "width": 40, "heads": 4, "positions": "none", "attention_bias": False,
             "mixers": [{"kind": "scan", **peer.entry_of_layer}]}
    tuned = {"steps": STEPS, "global_batch": 2, "lr": 1e-3, "warmup": 200, "clip": 1.0, "weight_decay": 0.1, "ema": 0.0,
             "precision": "fp32", "seed": 0, "log_every": 1, "checkpoint_every": 0, "evaluate_windows": 1}
    path.write_text(json.dumps({"name": "peer", "data": {"kind": "bytes", "path": "x.h5", "context": 75}, "model": model,
                                "train": tuned}))
    return model, tuned


class ScanPeers(unittest.TestCase):
    def each(self, check):
        for peer in PEERS[PACKAGE]:
            with self.subTest(peer.__name__):
                check(peer)

    def test_layers_compute_the_same(self):
        def check(peer):
            torch.manual_seed(3)
            model = {"layers": 1, "width": 40, "heads": 4, "positions": "none", "attention_bias": False,
                     "mixers": [{"kind": "scan", **peer.entry_of_layer}]}
            theirs, ours = peer(model, {"context": 75}), ScanReference(model, {"context": 75})
            p = {name: torch.randn(shape) * 0.5 for name, shape in ours.shapes().items()}
            x = torch.randn(2, 75, 40)
            right = ours.attend({name: w.double() for name, w in p.items()}, x.double(), 0)
            found, plain = theirs.attend(p, x, 0), ours.attend(p, x, 0)
            error = lambda y: (y.double() - right).norm() / right.norm()
            self.assertLess(error(found), 1e-5)
            self.assertLess(error(plain), 1e-5)

        self.each(check)

    def test_losses_of_training_are_the_same(self):
        def check(peer):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                (folder / "text").write_bytes((ROOT / "README.md").read_bytes() * 4)
                command("prepare", "bytes", "--input", "text", "--split", "0.9,0.05,0.05", "--output", "x.h5", folder=folder)
                model, tuned = recipe_of(peer, folder / "r.yaml")
                command("export", "r.yaml", "--output", "at", folder=folder)
                command("train", "r.yaml", "--run", "run", "--device", "cpu", folder=folder)
                lines = map(json.loads, (folder / "run/metrics.jsonl").read_text().splitlines())
                ours = [line["loss"] for line in lines if "lr" in line]
                weights = load_file(folder / "at/initial.safetensors")
                batches = load_file(folder / "at/batches.safetensors")["tokens"]
            parameters = {name: w.float().requires_grad_() for name, w in weights.items()}
            steps, _, _ = train(peer(model, {"context": 75}), parameters, batches, {**tuned, "seed": 0})
            self.assertEqual(len(ours), STEPS)
            self.assertLess(ours[-1], 0.75 * ours[0])
            worst = max(abs(step["loss"] - loss) / loss for step, loss in zip(steps, ours))
            print(f"{peer.__name__}: {STEPS} losses differ by at most {worst:.1e}")
            self.assertLess(worst, BOUND)

        self.each(check)


if __name__ == "__main__":
    unittest.main()
