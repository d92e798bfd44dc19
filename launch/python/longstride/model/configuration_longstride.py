"""The configuration of a Longstride model for transformers."""
from transformers import PretrainedConfig


class LongstrideConfig(PretrainedConfig):
    """`settings` is the model's, as settings.py reads it; the usual names of transformers follow from it."""

    model_type = "longstride"

    def __init__(self, settings=None, origin=None, **kwargs):
        self.settings, self.origin = settings, origin
        if settings is not None:
            vocabulary = settings.get("vocabulary", 256)
            kwargs.update(
                vocab_size=vocabulary + 1, bos_token_id=vocabulary, max_position_embeddings=settings["context"],
                hidden_size=settings["width"], num_hidden_layers=settings["layers"],
                num_attention_heads=settings["heads"], tie_word_embeddings=False, use_cache=False,
            )
        super().__init__(**kwargs)
        for key in ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads",
                    "use_cache"):
            if key in kwargs:
                setattr(self, key, kwargs[key])
