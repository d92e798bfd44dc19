"""A Longstride model for transformers.

Tokens are bytes, 0 to 255, or ids below another vocabulary. Every sequence begins with the first id beyond (256), which
stands for the vector in the first slot; the logits of a position predict the next one, as transformers has it, and never
that.
"""
import torch
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_longstride import LongstrideConfig
from .attention import Attention  # noqa: F401  transformers 4 copies only the files that this one names
from .blocks import drawn_blocks  # noqa: F401
from .distance import Shared  # noqa: F401
from .distance_settings import Distance  # noqa: F401
from .keys import UserError
from .patterns import attend  # noqa: F401
from .sampling import generate  # noqa: F401
from .settings import Settings
from .stream import Stream  # noqa: F401
from .decoder import Decoder


class LongstrideForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = LongstrideConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _no_split_modules = ["Layer"]
    _supports_cache_class = False

    def __init__(self, config):
        super().__init__(config)
        self.model = Decoder(Settings(config.settings, "settings of config.json"))
        self.post_init()

    def _init_weights(self, module):
        """Decoder draws its own initial values."""

    def get_input_embeddings(self):
        return self.model.embedding.token

    def get_output_embeddings(self):
        return self.model.output

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):
        # All of them: nothing is kept between steps.
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(self, input_ids=None, attention_mask=None, labels=None, return_dict=None, num_items_in_batch=None,
                **unused):
        """With labels (input_ids, or -100 for positions that do not count), a sequence may have context + 1 tokens.

        The last token of such a sequence is only predicted, so it has no logits. A model that remembers takes sequences
        of any length. The loss is a mean, or the sum over num_items_in_batch, which Trainer gives where one step has
        several batches.
        """
        self.check(input_ids, attention_mask, unused)
        context = self.config.settings["context"]
        only_predicted = labels is not None and input_ids.shape[1] == context + 1 and self.model.settings.memory is None
        read = input_ids[:, :context] if only_predicted else input_ids
        logits = self.model.slots(read)
        never = torch.full_like(logits[..., :1], torch.finfo(logits.dtype).min)
        logits = torch.cat([logits, never], -1)
        loss = None
        if labels is not None:
            predicted = logits[:, :labels.shape[1] - 1].flatten(0, 1)
            predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
            loss = torch.nn.functional.cross_entropy(predicted, labels[:, 1:].flatten().to(predicted.device),
                                                     reduction="mean" if num_items_in_batch is None else "sum")
            if num_items_in_batch is not None:
                loss = loss / torch.as_tensor(num_items_in_batch, device=loss.device)
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return CausalLMOutput(loss=loss, logits=logits)

    def check(self, input_ids, attention_mask, unused):
        whole = input_ids is not None and input_ids.dim() == 2 and input_ids.numel() > 0
        whole = whole and not input_ids.is_floating_point()
        start = self.model.start
        what = f"{'bytes' if start == 256 else 'ids'}, 0 to {start - 1}"
        if not whole or not bool((input_ids[:, 0] == start).all()):
            raise UserError(f"input_ids must be (batch, positions) and begin with {start}, then {what.split(',')[0]}: "
                            "prepend it")
        rest = input_ids[:, 1:]
        if bool(((rest < 0) | (rest >= start)).any()):  # asked once, as a GPU is waited for
            least = int(rest.min())
            if least < 0:
                raise UserError(f"input_ids has {least}, but tokens are {what}, after a first {start}")
            raise UserError(f"input_ids has {int(rest.max())} after the first position, where tokens are {what}")
        if attention_mask is not None and not bool((attention_mask == 1).all()):
            raise UserError("attention_mask hides positions, but Longstride's sequences have no padding; use sequences "
                            "of one length")
        for name, value in unused.items():
            if value is not None and value is not False and name in (
                    "inputs_embeds", "past_key_values", "position_ids", "output_attentions", "output_hidden_states"):
                raise UserError(f"{name} is given, but a Longstride model does not take it")
