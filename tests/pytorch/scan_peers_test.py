"""longstride.scan next to the definitions, position by position, that flash-linear-attention gives of each form."""
import importlib.util
import unittest
import warnings

import support

if importlib.util.find_spec("fla") is None:
    support.skip("there is no fla (flash-linear-attention, fla-core)")

import torch  # noqa: E402

warnings.filterwarnings("ignore", message="Triton is not supported")
from fla.ops.delta_rule.naive import delta_rule_recurrence  # noqa: E402
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule  # noqa: E402
from fla.ops.gla.naive import naive_recurrent_gla  # noqa: E402
from fla.ops.kda.naive import naive_recurrent_kda  # noqa: E402
from fla.ops.linear_attn.naive import naive_recurrent_linear_attn  # noqa: E402
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla  # noqa: E402
from support import longstride  # noqa: E402

N, KEYS, VALUES = 150, 24, 20  # ragged: chunks have 128 positions


def by_position(run):
    """Theirs have (batch, n, heads, size) and return a state as well."""

    def turned(q, k, v, **given):
        turn = lambda x: x.transpose(1, 2)
        return turn(run(turn(q), turn(k), turn(v), **{name: turn(x) for name, x in given.items()}))

    return turned


# Their definition, our arguments, and what they are called there.
FORMS = {
    "linear attention": (by_position(lambda q, k, v: naive_recurrent_linear_attn(q, k, v)[0]), {"form": "sum"}),
    "normalised": (by_position(lambda q, k, v: naive_recurrent_linear_attn(q, k, v, normalize=True)[0]),
                   {"form": "sum", "normalise": True}),
    "scalar decay": (by_position(lambda q, k, v, decay: naive_recurrent_simple_gla(q, k, v, decay)[0]), {"form": "gated"}),
    "gated linear attention": (by_position(lambda q, k, v, decay: naive_recurrent_gla(q, k, v, decay)[0]), {"form": "gated"}),
    "delta rule": (lambda q, k, v, beta: delta_rule_recurrence(q, k, v, beta)[0], {"form": "delta"}),
    "gated delta rule": (by_position(lambda q, k, v, decay, beta: naive_recurrent_gated_delta_rule(q, k, v, beta, decay)[0]),
                         {"form": "delta"}),
    "decay per channel": (by_position(lambda q, k, v, decay, beta: naive_recurrent_kda(q, k, v, decay, beta)[0]),
                          {"form": "delta"}),
}


def tensors_of(name, settings):
    torch.manual_seed(5)
    q, k, v = (torch.randn(2, 3, N, size) for size in (KEYS, KEYS, VALUES))
    if settings.get("normalise"):
        q, k = q.abs(), k.abs()
    made = {"q": q, "k": k / k.norm(dim=-1, keepdim=True), "v": v}
    if "decay" in name or "gated" in name:
        channels = [KEYS] if name in ("gated linear attention", "decay per channel") else []
        made["decay"] = -torch.rand(2, 3, N, *channels)
    if settings["form"] == "delta":
        made["beta"] = torch.rand(2, 3, N)
    return made


class Peers(unittest.TestCase):
    def test_every_form_and_its_gradients(self):
        for name, (theirs, settings) in FORMS.items():
            tensors = tensors_of(name, settings)
            dout = torch.randn(2, 3, N, VALUES)

            def results(run):
                given = {key: x.clone().requires_grad_() for key, x in tensors.items()}
                out = run(given)
                return {"o": out, **dict(zip(given, torch.autograd.grad(out, list(given.values()), dout)))}

            scale = 1 if settings.get("normalise") else KEYS**-0.5
            found = results(lambda x: longstride.scan(**{**x, "q": x["q"] * scale}, **settings))
            for key, right in results(lambda x: theirs(**x)).items():
                error = (found[key] - right).norm() / right.norm()
                with self.subTest(name, of=key):
                    self.assertLess(error, 2e-6)


if __name__ == "__main__":
    unittest.main()
