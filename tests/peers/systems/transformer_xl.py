"""Times and trains Transformer-XL (Dai et al. 2019) as strong PyTorch.

    transformer_xl [--layers 12] [--width 512] [--heads 8] [--inner 2048] [--segment 512] [--memory 512]
                            [--batch 192] [--attention matrix|sdpa|flex|triton|all] [options below]

The model of recipes/survey/text-8min-transformer-xl.yaml: post-norm, ReLU, tied output with a bias, biases u and v shared
by all layers, memories projected anew in every step. bf16 autocast with the residual stream and memories in bf16. The block
is compiled, AdamW is fused, and the whole step is one CUDA graph (--graph 0: without). Its forms of attention are those of
attention/distance.py. Memories begin as zeros that receive weight, as in Hugging Face's.
"""
from attention import distance
from frame.system import System


class TransformerXL(System):
    name, forms, parameters = "transformer_xl", distance.FORMS, 41082624
    recipe = dict(lr=5e-4, floor=0.0, schedule="cosine", warmup=400, clip=0.25, decay=0.0, dropout=0.1, deviation=0.02)
    tiny = dict(layers=3, width=16, heads=2, inner=64, segment=8, memory=12, batch=3)

    def attention(self, o, layer):
        return distance.DistanceAttention(o, layer)

    def complete(self, o):
        super().complete(o)
        if o.memory < 1 or o.segment < o.memory and o.memory % o.segment and o.verb != "check":
            raise SystemExit("transformer_xl: --memory must be positive, and a multiple of --segment if longer")

    def as_recipe(self, o):
        return {"distance": {"table": "sinusoid", "biases": "model"}, "memory": {"length": o.memory, "start": "zeros"}}


SYSTEM = TransformerXL()
