"""The keys of a model in recipes are those that launch/python computes or refuses in a sentence. Needs no PyTorch."""
import importlib.util
import re
import unittest

from support import ROOT

spec = importlib.util.spec_from_file_location("settings", ROOT / "launch/python/longstride/model/settings.py")
settings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(settings)


class Keys(unittest.TestCase):
    def setUp(self):
        page = (ROOT / "docs" / "guide" / "recipes.md").read_text()
        self.keys = set(re.findall(r"^\| `model\.([a-z_.]+)` \|", page, re.M)) - {"recompute"}  # changes what is stored

    def test_every_key_of_a_recipe_is_computed_or_refused(self):
        """Runs have them all in their resolved recipes."""
        self.assertEqual({key for key in self.keys if "." not in key},
                         settings.KEYS - {"context", "picture", "attention"})
        made = settings.Pattern({"integration": "merged", "parts": ["fixed_summary"], "stride": 4, "summary": 2}, 1)
        inner = {section: {key.split(".")[1] for key in self.keys if key.startswith(f"{section}.")}
                 for section in {key.split(".")[0] for key in self.keys if "." in key}}
        self.assertEqual(inner.pop("attention"), set(made.to_dict()))
        self.assertEqual(set(inner), set(settings.LACKING))

    def test_what_the_package_lacks_is_refused_by_name(self):
        for key in settings.LACKING:
            with self.assertRaisesRegex(settings.UserError, f"model has '{key}', but this package computes no model"):
                settings.Settings({"kind": "decoder", key: {}})


if __name__ == "__main__":
    unittest.main()
