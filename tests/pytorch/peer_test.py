"""model_torch.py with --backend LONGSTRIDE is the peer itself, with longstride.attention for its attention."""
import pathlib
import sys
import unittest

import support
import torch

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    support.skip(f"PyTorch {torch.__version__} has no FlexAttention with block lists; needs 2.6")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/peers"))
import model_torch  # noqa: E402

SMALL = dict(n=1536, d=32, h=2, L=4)


class Peer(unittest.TestCase):
    def tearDown(self):
        model_torch.operator = None

    def block(self, config, layer, operator, weights=None):
        """A block of the model, and its weights: a peer's column has three products where the operator has one."""
        model_torch.operator = operator
        block = model_torch.Block(config, layer)
        if weights:
            block.load_state_dict({
                name: weights[name] if name in weights else torch.cat(
                    [weights[name.replace("qkv", part)] for part in ("q", "k", "v")])
                for name in block.state_dict()})
        return block

    @torch.no_grad()
    def test_blocks_compute_what_the_peers_do(self):
        for name in ("enwik8_fixed", "enwik8_dense", "enwik8_strided", "cifar_strided"):
            config = {**model_torch.CFG[name], **SMALL}
            for layer in range(2):
                torch.manual_seed(layer)
                x = torch.randn(2, config["n"], config["d"])
                peer = self.block(config, layer, None)
                expected = peer(x, model_torch.mask_of(config, "cpu"))
                found = self.block(config, layer, support.longstride.attention, peer.state_dict())(x, None)
                with self.subTest(f"{name}, layer {layer}"):
                    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
