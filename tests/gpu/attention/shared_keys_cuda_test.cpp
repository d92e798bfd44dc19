// Query heads that share keys, and one query next to all keys, on the GPU.
#include "tests/gpu/attention/attention_cuda_fixture.h"

namespace longstride::kernels {
namespace {

class SharedKeysCuda : public AttentionCuda {};

INSTANTIATE_TEST_SUITE_P(Paths, SharedKeysCuda, ::testing::Values(AttentionPath::automatic, AttentionPath::portable),
                         [](const auto& path) {
                           return path.param == AttentionPath::portable ? "Portable" : "Automatic";
                         });

// Heads that share keys: one key head, or one for several, of every pattern, direction and type, at lengths of one tile
// and of several.
TEST_P(SharedKeysCuda, HeadsThatShareKeysAreAsGoodAsNaive) {
  int turn = 0;
  std::vector<NamedPattern> patterns = all_patterns();
  for (const NamedPattern& p : patterns_of_both_directions()) patterns.push_back(p);
  for (const NamedPattern& p : patterns)
    for (const std::int64_t n : {45, 333})
      for (const std::int64_t key_heads : {std::int64_t{1}, (p.heads + 1) / 2}) {
        if (p.heads % key_heads != 0) continue;
        const Dtype dtype = dtypes[++turn % 3];
        const AttentionShape shape{2, n, p.heads, key_sizes[turn % 4], value_sizes[turn % 3], 0, key_heads};
        const auto plan = make_plan(p.pattern, 0, p.heads, n);
        expect_equals_reference(p, 0, shape, dtype, masks_of(p.pattern, p.heads, 0, n), *plan, turn % 2 == 0);
        if (HasFailure()) return;
      }
}

// Twelve query heads on their groups of every size, in each family of kernels, with documents and without.
TEST_P(SharedKeysCuda, GroupsOfEverySizeAreAsGoodAsNaive) {
  for (const NamedPattern& named : models_patterns(48, 16)) {
    NamedPattern p = named;
    if (p.pattern.integration == Integration::multihead || p.pattern.distinct_heads) continue;
    p.heads = 12;
    const std::int64_t n = 203;
    const auto plan = make_plan(p.pattern, 0, p.heads, n);
    for (const std::int64_t key_heads : {1, 2, 3, 4, 6}) {
      auto masks = masks_of(p.pattern, p.heads, 0, n);
      const AttentionShape shape{2, n, p.heads, 64, 64, 0, key_heads};
      expect_equals_reference(p, 0, shape, Dtype::bf16, masks, *plan);
      const HostBounds bounds = documents_of(masks, shape.batch, 0);
      expect_equals_reference(p, 0, shape, Dtype::f16, masks, *plan, true, bounds);
      if (HasFailure()) return;
    }
  }
}

// A step of decoding: the last position next to all keys. Of sixteen rows, as a largest error of few numbers is chance.
TEST_P(SharedKeysCuda, OneQueryOfThePastIsAsGoodAsNaive) {
  int turn = 0;
  for (const NamedPattern& p : all_patterns())
    for (std::int64_t layer = 0; layer < layers_of(p.pattern); ++layer)
      for (const std::int64_t n : {2, 45, 333}) {
        auto masks = masks_of(p.pattern, p.heads, layer, n);
        for (Mask& mask : masks) mask.erase(mask.begin(), mask.end() - 1);
        const std::int64_t key_heads = ++turn % 2 == 0 ? p.heads : 1;
        const AttentionShape shape{16, n, p.heads, key_sizes[turn % 4], value_sizes[turn % 3], 1, key_heads};
        expect_equals_reference(p, layer, shape, dtypes[turn % 3], masks,
                                *make_plan(p.pattern, layer, p.heads, n, {}, 1), false);
        if (HasFailure()) return;
      }
}

}  // namespace
}  // namespace longstride::kernels
