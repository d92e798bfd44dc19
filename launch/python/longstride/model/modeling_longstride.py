"""A Longstride model for transformers.

Tokens are bytes, 0 to 255, or ids below another vocabulary. Every sequence begins with the first id beyond (256), which
stands for the vector in the first slot and is put before sequences that lack it; the logits of a position predict the next
one, as transformers has it, and never that.
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

    def generate(self, inputs=None, *arguments, **kwargs):
        """As transformers has it; the start stands for an empty prompt."""
        given = kwargs.get("input_ids", inputs)
        if torch.is_tensor(given) and given.dim() == 2 and given.shape[1] == 0:
            inputs = torch.full((len(given), 1), self.model.start, device=given.device)
            kwargs = {name: value for name, value in kwargs.items() if name not in ("input_ids", "attention_mask")}
        return super().generate(inputs, *arguments, **kwargs)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):
        """All of them, as nothing is kept between steps. Past the context, the second half of a full window begins the
        next, as in `longstride sample`, whose last window ends with the sample."""
        if attention_mask is not None:  # a row of padding alone shows its last, the start
            empty = ~attention_mask.bool().any(1, keepdim=True)
            attention_mask = torch.cat([attention_mask[:, :-1], attention_mask[:, -1:].masked_fill(empty, 1)], 1)
        context, begin = self.config.settings["context"], int(input_ids[0, 0] == self.model.start)
        count = input_ids.shape[1] - begin  # of bytes
        if count >= context and self.model.settings.memory is None:
            step = context - context // 2
            first = (count - context) // step * step + step
            input_ids = input_ids[:, begin + first:]
            attention_mask = None if attention_mask is None else attention_mask[:, begin + first:]
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(self, input_ids=None, attention_mask=None, labels=None, return_dict=None, num_items_in_batch=None,
                **unused):
        """With labels (input_ids, or -100 for positions that do not count), a sequence may have context + 1 tokens.

        The last token of such a sequence is only predicted, so it has no logits. A model that remembers takes sequences
        of any length. The loss is a mean, or the sum over num_items_in_batch, which Trainer gives where one step has
        several batches.
        """
        self.check_form(input_ids, unused)
        input_ids, hidden = self.without_padding(input_ids.long(), attention_mask)
        self.check_tokens(input_ids)
        read, lack = self.with_start(input_ids)
        context = self.config.settings["context"]
        if labels is not None and read.shape[1] == context + 1 and self.model.settings.memory is None:
            read = read[:, :context]
        logits = self.model.slots(read)
        if lack is not None:
            logits = torch.where(lack[:, None, None], logits[:, 1:], logits[:, :-1])
        if hidden is not None:
            logits = self.moved(logits, -hidden)
        never = torch.full_like(logits[..., :1], torch.finfo(logits.dtype).min)
        logits = torch.cat([logits, never], -1)
        loss = None
        if labels is not None:
            if hidden is not None:  # what follows hidden positions is predicted by none
                follows = torch.nn.functional.pad(attention_mask[:, :-1] == 0, (1, 0)).to(labels.device)
                labels = labels.masked_fill(follows, -100)
            predicted = logits[:, :labels.shape[1] - 1].flatten(0, 1)
            predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
            loss = torch.nn.functional.cross_entropy(predicted, labels[:, 1:].flatten().to(predicted.device),
                                                     reduction="mean" if num_items_in_batch is None else "sum")
            if num_items_in_batch is not None:
                loss = loss / torch.as_tensor(num_items_in_batch, device=loss.device)
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return CausalLMOutput(loss=loss, logits=logits)

    def with_start(self, input_ids):
        """What is read, and which rows lack the start, or None. The last slot of the others has no meaning."""
        lack = input_ids[:, 0] != self.model.start
        if not bool(lack.any()):
            return input_ids, None
        pad = torch.nn.functional.pad
        return torch.where(lack[:, None], pad(input_ids, (1, 0), value=self.model.start), pad(input_ids, (0, 1))), lack

    @staticmethod
    def moved(rows, by):
        """Rows (batch, positions, ...), each moved to the left by a number of its own, as a ring."""
        index = (torch.arange(rows.shape[1], device=rows.device) + by[:, None]) % rows.shape[1]
        return rows[torch.arange(rows.shape[0], device=rows.device)[:, None], index]

    @classmethod
    def without_padding(cls, input_ids, attention_mask):
        """The sequences with what is hidden behind them, where no position sees it; and how many positions were hidden
        before them, or None if all are seen."""
        if attention_mask is None or bool((attention_mask == 1).all()):
            return input_ids, None
        if attention_mask.shape != input_ids.shape:
            raise UserError(f"attention_mask is {tuple(attention_mask.shape)}, but must have the shape of input_ids, "
                            f"{tuple(input_ids.shape)}")
        seen = (attention_mask != 0).to(input_ids.device)
        before = (seen.cumsum(1) == 0).sum(1)
        first = cls.moved(seen, before)
        if not bool(seen.any(1).all()) or bool((first[:, 1:] & ~first[:, :-1]).any()):
            raise UserError("attention_mask hides positions within a sequence, or all of one, but may only hide those "
                            "before and behind it")
        return torch.where(first, cls.moved(input_ids, before), 0), before

    def check_form(self, input_ids, unused):
        whole = input_ids is not None and input_ids.dim() == 2 and input_ids.numel() > 0
        if not whole or input_ids.is_floating_point():
            raise UserError(f"input_ids must be whole numbers, (batch, positions): {self.model.start}, then {self.kind()}")
        for name, value in unused.items():
            if value is not None and value is not False and name in (
                    "inputs_embeds", "past_key_values", "position_ids", "output_attentions", "output_hidden_states"):
                raise UserError(f"{name} is given, but a Longstride model does not take it")

    def kind(self):
        return "bytes" if self.model.start == 256 else "ids"

    def check_tokens(self, input_ids):
        start = self.model.start
        beyond = (input_ids[:, 0] > start).any() | (input_ids[:, 1:] >= start).any()
        if bool((input_ids < 0).any() | beyond):  # asked once, as a GPU is waited for
            least = int(input_ids.min())
            raise UserError(f"input_ids has {least if least < 0 else int(input_ids.max())}, but tokens are "
                            f"{self.kind()}, 0 to {start - 1}, after a first {start}")
