"""Models of transformers with attn_implementation="longstride" compute what they do with "eager", and train."""
import copy
import os
import unittest

import support
import torch
from support import device, longstride

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
try:
    import transformers
    from transformers import AttentionMaskInterface  # noqa: F401
except ImportError:
    support.skip("this Python has no transformers 4.53")

streaming = longstride.Pattern(["local", "first"], integration="merged", window=9, first=4)
longstride.register_in_transformers()
longstride.register_in_transformers("streaming", pattern=streaming)
SMALL = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def pair(config, model, name="longstride"):
    """The same model with eager attention and with the other."""
    torch.manual_seed(0)
    eager, other = (model._from_config(copy.deepcopy(config), attn_implementation=of).to(device) for of in ("eager", name))
    assert (eager.config._attn_implementation, other.config._attn_implementation) == ("eager", name)
    other.load_state_dict(eager.state_dict())
    return eager, other


def llama(name="longstride", **more):
    return pair(transformers.LlamaConfig(**SMALL, **more), transformers.LlamaForCausalLM, name)


def tokens(*shape):
    return torch.randint(3, 97, shape, generator=torch.Generator().manual_seed(1)).to(device)


def streaming_mask(n):
    i, j = torch.arange(n, device=device)[:, None], torch.arange(n, device=device)[None]
    seen = (j <= i) & ((i - j < 9) | (j < 4))
    return torch.zeros(n, n, device=device).masked_fill(~seen, float("-inf"))[None, None]


class Models(unittest.TestCase):
    def check(self, eager, other, ids, of_eager=None, **both):
        losses = [eager(ids, labels=ids, **(of_eager or {}), **both).loss, other(ids, labels=ids, **both).loss]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-5)
        for loss in losses:
            loss.backward()
        for (name, x), y in zip(eager.named_parameters(), other.parameters()):
            torch.testing.assert_close(y.grad, x.grad, rtol=1e-3, atol=1e-5, msg=lambda text: f"{name}: {text}")

    def test_llama_sees_the_past(self):
        self.check(*llama(), tokens(2, 50))

    def test_llama_with_a_window_and_sinks(self):
        self.check(*llama("streaming"), tokens(2, 50), {"attention_mask": streaming_mask(50).expand(2, -1, -1, -1)})

    def test_llama_trains(self):
        _, model = llama("streaming")
        ids, optimizer = tokens(4, 40), torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for _ in range(25):
            loss = model(ids, labels=ids).loss
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertLess(losses[-1], 0.6 * losses[0])

    def test_generation_reads_its_cache(self):
        ids = tokens(2, 20)
        for name in ("longstride", "streaming"):
            eager, other = llama(name)
            with torch.no_grad():
                made = other.generate(ids, do_sample=False, max_new_tokens=30, eos_token_id=None)
                if name == "longstride":
                    self.assertTrue(torch.equal(made, eager.generate(ids, do_sample=False, max_new_tokens=30,
                                                                     eos_token_id=None)))
                # Some rows next to a cache, and each by itself, as all at once.
                cache, steps = transformers.DynamicCache(), []
                for part in (made[:, :20], made[:, 20:27], *made[:, 27:].split(1, 1)):
                    steps.append(other(part, past_key_values=cache, use_cache=True).logits)
                torch.testing.assert_close(torch.cat(steps, 1), other(made).logits, rtol=1e-4, atol=1e-4)

    def test_padding_and_packed_sequences_are_hidden(self):
        ids = tokens(2, 40)
        mask = torch.ones_like(ids)
        mask[0, :7] = 0
        mask[1, 33:] = 0
        eager, other = llama()
        with torch.no_grad():
            for x, y in zip(*(model(ids, attention_mask=mask).logits for model in (eager, other))):
                self.assertEqual(x.shape, y.shape)
            right, found = (model(ids, attention_mask=mask).logits[mask.bool()] for model in (eager, other))
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
        positions = torch.cat([torch.arange(15), torch.arange(25)]).to(device)[None].expand(2, -1)
        self.check(eager, other, ids, position_ids=positions)

    def test_windows_and_learned_sinks_of_models(self):
        config = transformers.MistralConfig(**SMALL, sliding_window=11)
        self.check(*pair(config, transformers.MistralForCausalLM), tokens(2, 50))
        config = transformers.GptOssConfig(**SMALL, head_dim=16, sliding_window=11, num_local_experts=2,
                                           num_experts_per_tok=2, layer_types=["sliding_attention", "full_attention"])
        eager, other = pair(config, transformers.GptOssForCausalLM)
        for model in (eager, other):
            for name, sinks in model.named_parameters():
                if name.endswith("sinks"):
                    torch.nn.init.constant_(sinks, 0.7)
        self.check(eager, other, tokens(2, 50))

    def test_both_directions(self):
        config = transformers.BertConfig(**{**SMALL, "num_key_value_heads": 4}, hidden_dropout_prob=0.0,
                                         attention_probs_dropout_prob=0.0)
        self.check(*pair(config, transformers.BertForMaskedLM), tokens(2, 50))

    def test_what_cannot_be_computed_is_refused(self):
        ids = tokens(2, 12)
        with self.assertRaisesRegex(ValueError, "attention_dropout is 0.1, but longstride.attention drops no"):
            llama(attention_dropout=0.1)[1].train()(ids)
        _, model = llama()
        with self.assertRaisesRegex(ValueError, "a mask of pairs, but must be"):
            model(ids, attention_mask=streaming_mask(12).expand(2, -1, -1, -1))
        mask = torch.ones_like(ids)
        mask[0, 5] = 0
        with self.assertRaisesRegex(ValueError, "hides positions between others of a row"):
            model(ids, attention_mask=mask)
        with self.assertRaisesRegex(ValueError, "the cache has room for 30 keys"):
            model(ids, past_key_values=transformers.StaticCache(config=model.config, max_cache_len=30), use_cache=True)
        with self.assertRaisesRegex(ValueError, "pattern is 'local', but must be a longstride.Pattern"):
            longstride.register_in_transformers(pattern="local")


if __name__ == "__main__":
    unittest.main()
