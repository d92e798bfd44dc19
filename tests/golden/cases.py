"""The models in the golden files: every pattern x integration, and every variant that changes the numbers."""


def attention(integration, parts, stride=8, **more):
    return {"integration": integration, "parts": parts, "stride": stride, **more}


def case(pattern, n=32, context=None, layers=2, width=24, heads=4, data=None, **model):
    """n may be less than the context: a shorter sequence, such as the last window of an evaluation."""
    model = {"kind": "decoder", "layers": layers, "width": width, "heads": heads, **model}
    return {
        "batch": 2,
        "positions": n,
        "data": {"context": context or n, **(data or {})},
        "model": {**model, "attention": pattern},
    }


FIXED = ["fixed_block", "fixed_summary"]
STRIDED = ["local", "column"]

CASES = {
    "dense": case(attention("interleaved", ["dense"])),
    "strided_interleaved": case(attention("interleaved", STRIDED)),
    "strided_merged": case(attention("merged", STRIDED)),
    "strided_multihead": case(attention("multihead", STRIDED)),
    "fixed_interleaved": case(attention("interleaved", FIXED, summary=2)),
    "fixed_merged": case(attention("merged", FIXED, summary=2)),
    "fixed_multihead": case(attention("multihead", FIXED, summary=2)),
    # The released image models: this cycle of parts, a window of l keys, half-size keys and feed-forward layers, and
    # positions by row, column and channel.
    "image_cycle": case(
        attention("interleaved", ["column", "local", "local"], stride=12, window=12),
        n=36, layers=3, width=32, heads=2, data={"rows": 3, "columns": 4, "channels": 3},
        positions="data", key_ratio=0.5, feed_forward_ratio=2.0,
    ),
    "strided_merged_window_stride": case(attention("merged", STRIDED, window=8)),
    "strided_merged_window_short": case(attention("merged", STRIDED, window=3)),
    "strided_merged_window_long": case(attention("merged", STRIDED, window=19)),
    "strided_multihead_ragged": case(attention("multihead", ["column", "local"], stride=7), n=37, width=30, heads=5),
    "strided_stride_one": case(attention("merged", STRIDED, stride=1), n=12, width=16, heads=2),
    "strided_stride_beyond": case(attention("interleaved", STRIDED, stride=40), n=24, width=16, heads=2),
    "fixed_merged_inclusive": case(attention("merged", FIXED, summary=3, summary_inclusive=True)),
    "fixed_interleaved_inclusive": case(attention("interleaved", FIXED, summary=3, summary_inclusive=True)),
    "fixed_merged_distinct": case(attention("merged", FIXED, summary=2, distinct_heads=True)),
    "fixed_interleaved_distinct": case(attention("interleaved", FIXED, summary=2, distinct_heads=True)),
    "fixed_multihead_distinct": case(
        attention("multihead", FIXED, summary=2, distinct_heads=True), width=32, heads=8),
    # The sub-block of the last head starts at column 0, which `summary_inclusive` adds too.
    "fixed_merged_distinct_inclusive": case(
        attention("merged", FIXED, summary=2, distinct_heads=True, summary_inclusive=True)),
    "fixed_merged_summary_list": case(
        attention("merged", FIXED, summary=[1, 2, 3, 4], distinct_heads=True), width=32),
    "fixed_interleaved_summary_list": case(attention("interleaved", FIXED, summary=[1, 2, 3, 5]), width=32),
    # l does not divide n, c does not divide l, and there is one head more than sub-blocks.
    "fixed_merged_ragged": case(
        attention("merged", FIXED, stride=7, summary=3, distinct_heads=True), n=37, width=18, heads=3),
    "fixed_interleaved_ragged": case(attention("interleaved", FIXED, stride=11, summary=4), n=39, layers=3),
    "fixed_whole_block_summary": case(attention("merged", FIXED, stride=6, summary=6), n=20, width=16, heads=2),
    "fixed_stride_beyond": case(attention("interleaved", FIXED, stride=40, summary=4), n=24, width=16, heads=2),
    "multihead_three_parts": case(attention("multihead", ["dense", "local", "column"]), key_ratio=0.5),
    "dense_shorter_than_context": case(attention("interleaved", ["dense"]), n=21, context=40),
    "fixed_merged_shorter_than_context": case(attention("merged", FIXED, summary=2), n=21, context=40),
    "strided_interleaved_shorter_than_context": case(attention("interleaved", STRIDED), n=21, context=40),
    # Beyond the paper: rotary positions and normalised queries and keys, together without position tables, and each
    # alone with them.
    "beyond_strided_merged": case(
        attention("merged", STRIDED), n=37, positions="none", rotary_base=10000.0, query_key_norm=True),
    "beyond_rotary_fixed": case(attention("interleaved", FIXED, summary=2), width=32, key_ratio=0.5, rotary_base=100.0),
    "beyond_query_key_norm_fixed": case(
        attention("multihead", FIXED, summary=2), width=20, query_key_norm=True),
    # Other forms of blocks, embedding and output: Transformer-XL's, without its attention; GPT-2's; a gated one.
    "form_transformer_xl": case(
        attention("interleaved", ["dense"]), n=37, positions="none", rotary_base=10000.0, norm="post",
        activation="relu", attention_bias=False, tied_output=True, output_bias=True, embedding_scale=True),
    "form_post_norm": case(attention("merged", FIXED, summary=2), layers=3, norm="post"),
    "form_gpt2": case(attention("interleaved", STRIDED), activation="gelu", tied_output=True),
    "form_geglu": case(
        attention("interleaved", ["dense"]), activation="geglu", feed_forward_ratio=2.0, attention_bias=False,
        feed_forward_bias=False, output_bias=True, embedding_scale=True),
    # Bands of ids with narrower vectors, next to positions; every end has its own, without biases.
    "adaptive_untied": case(
        attention("merged", STRIDED), n=37, width=16, heads=2, adaptive={"cutoffs": [60, 61, 200], "divide": 2}),
    "form_unbiased": case(attention("merged", FIXED, summary=2), feed_forward_bias=False),
    # Keys and values of fewer heads, whose queries see the same keys and others.
    "shared_keys": case(
        attention("merged", STRIDED, key_heads=2), n=37, width=32, key_ratio=0.5, positions="none", rotary_base=100.0),
    "shared_keys_multihead": case(attention("multihead", FIXED, summary=2, key_heads=1)),
    "one_position": case(attention("merged", FIXED, summary=2), n=1, context=16, width=16, heads=2),
}


FORM = {"norm": "post", "activation": "relu", "attention_bias": False, "tied_output": True, "output_bias": True,
        "embedding_scale": True}


def training(pattern, dropout=0.0, key_ratio=1.0, form=None, **more):
    """Twenty steps from the golden parameters, on a fresh batch each; recipe keys as in `train:`, and the optimizer."""
    train = {"steps": 24, "lr": 3e-3, "warmup": 6, "weight_decay": 0.1, "clip": 1.5, "ema": 0.9, "seed": 7, **more}
    model = {**({} if key_ratio == 1.0 else {"key_ratio": key_ratio}), **(form or {})}
    return {**case(pattern, dropout=dropout, **model), "train": train, "taken": 20}


TRAINING = {
    "training_fixed_merged": training(attention("merged", FIXED, summary=2)),
    "training_strided_interleaved": training(attention("interleaved", STRIDED), clip=0.0, warmup=0, ema=0.0),
    # Masks keyed by (seed, step, layer, element): a seed of more than 32 bits.
    "training_dropout": training(attention("multihead", STRIDED), dropout=0.3, seed=0x123456789ABCDEF),
    # And of everything that Transformer-XL drops besides its table of distances and its probabilities.
    "training_every_dropout": training(
        attention("interleaved", ["dense"]), dropout=0.2,
        form={**FORM, "embedding_dropout": 0.1, "inner_dropout": 0.25, "output_dropout": 0.3}),
    "training_inner_dropout": training(attention("merged", STRIDED), form={"inner_dropout": 0.2}),
    "training_inner_dropout_gated": training(
        attention("merged", STRIDED), form={"inner_dropout": 0.2, "activation": "geglu", "embedding_dropout": 0.1}),
    # The matrices of queries and keys are wide here, those of values square, feed-forward weights wide and tall.
    "training_muon": training(attention("merged", STRIDED), optimizer="muon", key_ratio=0.5),
    "training_muon_shared_keys": training(attention("merged", STRIDED, key_heads=1), optimizer="muon"),
    # Post-norm with dropout, and a table whose gradient comes from both ends and which has weight decay once.
    "training_transformer_xl": training(attention("interleaved", ["dense"]), dropout=0.2, form=FORM),
    # With a smaller epsilon the biases of keys, whose gradients are pure rounding errors, would move: here and below.
    "training_adagrad": training(attention("merged", FIXED, summary=2), optimizer="adagrad", epsilon=1e-8, lr=0.02),
    # Some tensors have larger gradients than this, others smaller ones, after clipping by the global norm too.
    "training_adagrad_tensor_clip": training(
        attention("interleaved", STRIDED), optimizer="adagrad", epsilon=1e-8, lr=0.02, tensor_clip=0.2, key_ratio=0.5),
    "training_adafactor": training(
        attention("merged", FIXED, summary=2), optimizer="adafactor", epsilon=1e-16, lr=0.05,
        schedule="reciprocal_sqrt", warmup=0, decay_from=8),
    "training_adafactor_momentum": training(
        attention("interleaved", STRIDED), optimizer="adafactor", epsilon=1e-12, lr=5e-4, beta1=0.9, decay_rate=0.6,
        clip_threshold=0.5, scale_parameter=False, key_ratio=0.5, schedule="reciprocal_sqrt", decay_from=6),
}


def encoder(pattern, objective=None, **model):
    """Both directions; what is asked is drawn with seed 0 and the number of the row."""
    more = case(pattern, **model)
    return {**more, "objective": {"kind": "masked", **(objective or {})}, "model": {**more["model"], "kind": "encoder"}}


BERT = {"norm": "post", "activation": "gelu", "embedding_norm": True}
ENCODERS = {
    "encoder_bert": encoder(attention("interleaved", ["dense"], stride=0), **BERT),
    "encoder_window_words": encoder(
        attention("merged", ["local"], stride=0, window=9), {"unit": "word", "share": 0.3}, n=37, **BERT),
    "encoder_rotary_spans": encoder(
        attention("multihead", ["local", "column"], window=7), {"unit": "span", "length": 5, "share": 0.25},
        positions="none", rotary_base=100.0, query_key_norm=True, activation="geglu", tied_output=False),
    "encoder_fixed": encoder(
        attention("merged", FIXED, summary=2), {"mask": 0.4, "random": 0.4, "keep": 0.2, "share": 0.5},
        positions="attention", output_bias=False, embedding_scale=True),
    "encoder_shorter_than_context": encoder(
        attention("interleaved", ["dense"], stride=0), {"unit": "group"}, n=21, context=40, activation="relu"),
}


def training_encoder(objective, dropout=0.2, **more):
    return {**encoder(attention("merged", ["local"], stride=0, window=9), objective, dropout=dropout, **BERT, **more),
            "train": {"steps": 24, "lr": 3e-3, "warmup": 6, "weight_decay": 0.1, "clip": 1.5, "ema": 0.9, "seed": 7},
            "taken": 20}


TRAINING_ENCODERS = {
    "training_encoder_words": training_encoder({"unit": "word", "share": 0.3}),
    "training_encoder_spans": training_encoder(
        {"unit": "span", "length": 3}, embedding_dropout=0.1, inner_dropout=0.2, output_dropout=0.3),
}


INITIAL = {
    "initial_fixed": {**CASES["fixed_merged"], "seed": 1},
    "initial_image": {**CASES["image_cycle"], "seed": 0x123456789ABCDEF},
    "initial_own_deviation": {**case(attention("interleaved", ["dense"]), init_deviation=0.02), "seed": 3},
    "initial_own_tables": {
        **case(attention("interleaved", ["dense"]), init_deviation=0.02, init_deviations={"embedding": 1.0}), "seed": 4},
    "initial_deviation": {**case(attention("interleaved", ["dense"]), init="deviation"), "seed": 2},
}
