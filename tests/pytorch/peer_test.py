"""The sparse peer with --attention longstride is the peer itself, with longstride.attention for its attention, and cases of
`run.py op` ask both sides for the same."""
import pathlib
import sys
import unittest

import support
import torch

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    support.skip(f"PyTorch {torch.__version__} has no FlexAttention with block lists; needs 2.6")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/peers"))
from attention import etc, global_rows  # noqa: E402
from frame import command  # noqa: E402
from systems.sparse import SYSTEM, SparseAttention  # noqa: E402


class Peer(unittest.TestCase):
    def attention(self, name, form):
        o = command.parser_of(SYSTEM, "time").parse_args(["--device", "cpu", "--model", name, "--attention", form])
        o.context, o.width, o.heads, o.layers = 768, 32, 2, 4
        o = command.completed(SYSTEM, o)
        return lambda layer: SparseAttention(o, layer)

    @torch.no_grad()
    def test_layers_compute_what_the_peers_do(self):
        for name in ("enwik8_fixed", "enwik8_dense", "enwik8_strided", "cifar_strided", "text_8min"):
            peers, ours = self.attention(name, "triton"), self.attention(name, "longstride")
            for layer in range(2):
                torch.manual_seed(layer)
                x = torch.randn(2, 768, 32)
                peer, found = peers(layer), ours(layer)
                weights = peer.state_dict()  # a peer's column has three products where the operator has one
                found.load_state_dict({
                    key: weights[key] if key in weights else torch.cat([weights[key.replace("qkv", part)] for part in "qkv"])
                    for key in found.state_dict()})
                with self.subTest(f"{name}, layer {layer}"):
                    torch.testing.assert_close(found(x, [], (), None)[0], peer(x, [], (), peer.mask(768))[0], rtol=1e-4, atol=1e-4)

    def test_cases_of_op_are_the_same_attention(self):
        for case in (etc, global_rows):
            with self.subTest(case.__name__):
                self.assertEqual(case.check(), 0)


if __name__ == "__main__":
    unittest.main()
