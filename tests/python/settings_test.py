"""The keys of a model in recipes are those that launch/python computes or refuses in a sentence. Needs no PyTorch."""
import re
import sys
import unittest

from support import ROOT

from longstride.model import distance_settings, settings


class Keys(unittest.TestCase):
    def setUp(self):
        page = (ROOT / "docs" / "guide" / "recipes.md").read_text()
        self.keys = set(re.findall(r"^\| `model\.([a-z_.]+)` \|", page, re.M)) - {"recompute"}  # changes what is stored

    def test_every_key_of_a_recipe_is_computed_or_refused(self):
        """Runs have them all in their resolved recipes."""
        top = {"context", "picture", "vocabulary", "attention", "distance", "memory", "init_deviations", "global", "adaptive"}
        self.assertEqual({key for key in self.keys if "." not in key}, settings.KEYS - top)
        made = settings.Settings({
            "kind": "decoder", "context": 8, "layers": 1, "width": 4, "heads": 1, "positions": "none",
            "distance": {"table": "sinusoid", "span": {"longest": 4}}, "memory": {"length": 8}}).to_dict()
        pattern = settings.Pattern({"integration": "merged", "parts": ["fixed_summary"], "stride": 4, "summary": 2}, 1)
        encoder = settings.Settings({"kind": "encoder", "context": 8, "layers": 1, "width": 4, "heads": 1,
                                     "attention": {"integration": "merged", "parts": ["local"], "window": 3}}).to_dict()
        found = {"attention": pattern.to_dict(), "distance": made["distance"], "memory": made["memory"],
                 "init_deviations": made["init_deviations"], "global": encoder["global"]}
        inner = {f"{section}.{key}" for section, keys in found.items() for key in keys if key != "span"}
        inner |= {f"distance.span.{key}" for key in made["distance"]["span"]}
        self.assertEqual({key for key in self.keys if "." in key and not key.startswith("adaptive.")}, inner)
        self.assertNotIn("torch", sys.modules)

    def test_what_only_the_command_has_is_refused_in_a_sentence(self):
        model = {"kind": "encoder", "context": 8, "layers": 1, "width": 4, "heads": 1,
                 "attention": {"integration": "merged", "parts": ["local"], "window": 3, "labels": 0}, "global": {"added": 0}}
        settings.Settings(model)
        for change, message in [
            ({"adaptive": {"cutoffs": [4]}}, "model.adaptive: adaptive softmax and input run in the longstride command"),
            ({"attention": {**model["attention"], "labels": 2}}, "'labels' is 2, but must be 0, as labels run in the"),
            ({"global": {"added": 2}}, "'added' is 2, but must be 0, as added rows run in the longstride command alone"),
        ]:
            with self.assertRaisesRegex(settings.UserError, re.escape(message)):
                settings.Settings({**model, **change})

    def test_deviations_of_tables_that_a_model_lacks_are_refused_in_a_sentence(self):
        model = {"kind": "decoder", "context": 8, "layers": 1, "width": 4, "heads": 1, "positions": "none",
                 "distance": {"table": "learned", "distances": 8}, "init_deviations": {"distance_table": 1}}
        self.assertEqual(settings.Settings(model).init_deviations, {"embedding": 0, "distance_table": 1})
        for change, message in [
            ({"distance": {"table": "sinusoid"}}, "without distance_table, except with a learned table of distances"),
            ({"init_deviations": {"output": 1}}, "model.init_deviations has a key \"output\" that this version"),
            ({"init_deviations": {"embedding": -1}}, "'embedding' is -1, but must be a number of at least 0"),
            ({"init_deviations": 1}, "model.init_deviations is 1, but must be a map of keys"),
        ]:
            with self.assertRaisesRegex(settings.UserError, re.escape(message)):
                settings.Settings({**model, **change})

    def test_settings_of_distances_are_refused_in_a_sentence(self):
        for values, message in [
            ({"table": "sines"}, "'table' is \"sines\", but must be one of none, sinusoid, learned"),
            ({"table": "learned"}, "'distances' is 0, but must be the number of rows of a learned table"),
            ({"table": "none", "distances": 4}, "'distances' is 4, but must be 0 with table: none"),
            ({"table": "sinusoid", "shared_table": True}, "'shared_table' is true, but must be false, except with"),
            ({"table": "sinusoid", "window": [4, 4, 4]}, "'window' is [4, 4, 4], but must be a positive whole number"),
            ({"table": "sinusoid", "dilation": 0}, "'dilation' is [0], but must be a positive whole number"),
            ({"table": "sinusoid", "dilated_heads": 3}, "'dilated_heads' is 3, but must be a whole number from 0"),
            ({"table": "none", "self": False, "window": 1}, "'window' is [1], but must be 2 or more with self: false"),
            ({"table": "none", "span": {"ramp": 3}}, "distance.span has no key 'longest', which the model needs"),
            ({"table": "none", "far": 1}, "has a key \"far\" that this version of the longstride package does not"),
        ]:
            with self.assertRaisesRegex(settings.UserError, re.escape(message)):
                distance_settings.Distance(values, 2, 2)
        for values, message in [
            ({"length": 12, "compressed": 4, "rate": 2}, "'length' is 12, but must be a multiple of the context, 8"),
            ({"length": 8, "compressed": 4}, "'rate' is 0, but must be a divisor of the context, 8"),
            ({"length": 8, "compressed": 3, "rate": 2}, "'compressed' is 3, but must be at least 4, the rows"),
            ({"length": 8, "start": "ones"}, "'start' is \"ones\", but must be one of empty, zeros"),
        ]:
            with self.assertRaisesRegex(settings.UserError, re.escape(message)):
                distance_settings.Memory(values, 8)


if __name__ == "__main__":
    unittest.main()
