// The host's side: whether the kernel supports a model, the layout of memory, and the packing of the weights.
#include <algorithm>
#include <bit>

#include "framework/models/decoder/generate/cluster.cuh"
#include "framework/models/decoder/generate/generate.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::generation {

class Generator {
 public:
  ModelShape shape;
  GenerationProblem problem = {};
  Cluster cluster;  // size 0: the grid kernel
  int blocks = 0;
  std::size_t shared_bytes = 0;
};

namespace {

constexpr std::int64_t keys_per_block = 320;  // without clusters; a head with more keys is split between blocks
constexpr std::int64_t words_in_cache = std::int64_t{4} << 20;  // bytes of words used in turn: they should stay in L2

struct Gpu {
  int blocks = 0;
  std::size_t shared_bytes = 0;
};

// The current GPU; 0 blocks where there is none, or one without cooperative launch.
Gpu this_gpu() {
  int device = 0, major = 0, blocks = 0, shared = 0, cooperative = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  const auto get = [&](int& value, cudaDeviceAttr attribute) {
    check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  };
  get(major, cudaDevAttrComputeCapabilityMajor);
  get(blocks, cudaDevAttrMultiProcessorCount);
  get(shared, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  get(cooperative, cudaDevAttrCooperativeLaunch);
  if (major < 8 || cooperative == 0) return {};
  return {blocks, static_cast<std::size_t>(shared)};
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Layout of the packed weights of a layer, or of the head.
class PackedLayout {
 public:
  explicit PackedLayout(int element_bytes, int blocks) : element_bytes_(element_bytes), blocks_(blocks) {}

  PackedMatrix matrix(std::int64_t rows, std::int64_t columns, int offset) {
    PackedMatrix m;
    m.tiles = static_cast<std::int32_t>(rows / tile_rows);
    m.depth = static_cast<std::int32_t>(columns * element_bytes_ / 64);
    m.offset = offset % blocks_;
    m.blocks = take(rows * columns * element_bytes_);
    m.bias = -1;
    return m;
  }
  // Call after all matrices have been added.
  void bias(PackedMatrix& m) { m.bias = take(m.tiles * tile_rows * std::int64_t{4}); }
  Norm norm(std::int64_t width) {
    Norm n;
    n.gain = take(width * 4);
    n.bias = take(width * 4);
    return n;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t at = bytes_;
    bytes_ += rounded(bytes);
    return at;
  }
  int element_bytes_, blocks_;
  std::int64_t bytes_ = 0;
};

// Geometry relative to the head's first row in the cache.
HeadGeometry relative_geometry(const DecodePlan& plan, std::size_t head) {
  HeadGeometry g = geometry_of(plan, head);
  const std::int64_t first = g.rings[0].first_row;
  for (std::int32_t r = 0; r < g.ring_count; ++r) g.rings[r].first_row -= first;
  return g;
}

bool same(const HeadGeometry& a, const HeadGeometry& b) {
  bool equal = a.ring_count == b.ring_count && a.part_count == b.part_count;
  for (std::int32_t r = 0; equal && r < a.ring_count; ++r)
    equal = a.rings[r].set == b.rings[r].set && a.rings[r].capacity == b.rings[r].capacity &&
            a.rings[r].first_row == b.rings[r].first_row;
  for (std::int32_t p = 0; equal && p < a.part_count; ++p)
    equal = a.parts[p].part.keys == b.parts[p].part.keys && a.parts[p].part.low == b.parts[p].part.low &&
            a.parts[p].part.high == b.parts[p].part.high && a.parts[p].classes == b.parts[p].classes &&
            a.parts[p].ring == b.parts[p].ring;
  return equal;
}

// The largest number of keys that a query of this head attends to.
std::int64_t most_keys(const HeadGeometry& g, std::int32_t n) {
  std::int64_t most = 0;
  for (std::int32_t p = 0; p < g.part_count; ++p) {
    const Part& part = g.parts[p].part;
    const std::int64_t window = (part.low.block > 0 ? part.low.block : 1) + std::int64_t{part.low.back};
    most += part.low.back >= n ? part.keys.length : std::min<std::int64_t>(part.keys.length, window);
  }
  return most;
}

// The tables of a problem, as uploaded to the device.
struct HostTables {
  std::vector<HeadGeometry> geometry;
  std::vector<HeadEntry> heads;    // (plan, head)
  std::vector<std::int32_t> plan;  // one per layer
  int plans = 0;
  std::int64_t most = 1;  // keys per query

  explicit HostTables(const ModelShape& shape) {
    std::vector<const DecodePlan*> seen;
    for (const auto& decode : shape.plans) {
      const auto twin = std::find(seen.begin(), seen.end(), decode.get());
      plan.push_back(static_cast<std::int32_t>(twin - seen.begin()));
      if (twin == seen.end()) {
        seen.push_back(decode.get());
        add(*decode);
      }
    }
    plans = static_cast<int>(seen.size());
  }

 private:
  void add(const DecodePlan& decode) {
    for (std::size_t h = 0; h < decode.heads.size(); ++h) {
      const HeadGeometry g = relative_geometry(decode, h);
      most = std::max(most, most_keys(g, decode.n));
      const auto twin = std::find_if(geometry.begin(), geometry.end(), [&](const auto& o) { return same(o, g); });
      heads.push_back({geometry_of(decode, h).rings[0].first_row, static_cast<std::int32_t>(twin - geometry.begin())});
      if (twin == geometry.end()) geometry.push_back(g);
    }
  }
};

// Everything but pointers. blocks is 0 where the kernel does not support the model.
Generator outline(const ModelShape& shape, const HostTables& tables, const Gpu& gpu) {
  Generator g;
  g.shape = shape;
  GenerationProblem& p = g.problem;
  const auto small = [](std::int64_t x) { return static_cast<int>(x); };
  p.layers = small(shape.layers);
  p.width = small(shape.width);
  p.inner = small(shape.inner);
  p.vocabulary = small(shape.vocabulary);
  p.batch = small(shape.batch);
  p.heads.count = small(shape.heads);
  p.heads.key_size = small(shape.key_size);
  p.heads.value_size = small(shape.value_size);
  p.heads.n = shape.plans.front()->n;
  p.heads.scale = 1.0f / sqrtf(static_cast<float>(shape.key_size));
  p.heads.transformed = shape.transform.any();
  p.heads.normalised = shape.transform.normalise;
  p.turns = PairTurns(shape.transform, shape.key_size);
  p.plans = tables.plans;
  p.geometries = small(static_cast<std::int64_t>(tables.geometry.size()));

  const int bytes = small(static_cast<std::int64_t>(bytes_of(shape.dtype))), blocks = gpu.blocks;
  PackedLayout layer(bytes, blocks), head(bytes, blocks);
  const std::int64_t mixed = shape.heads * shape.value_size, d = shape.width;
  p.qkv = layer.matrix(shape.heads * (2 * shape.key_size + shape.value_size), d, 0);
  p.output = layer.matrix(d, mixed, 0);
  p.feed_inner = layer.matrix(shape.inner, d, 0);
  p.feed_outer = layer.matrix(d, shape.inner, blocks / 2);
  p.vectors = layer.bytes();
  for (PackedMatrix* m : {&p.qkv, &p.output, &p.feed_inner, &p.feed_outer}) layer.bias(*m);
  p.attention_norm = layer.norm(d);
  p.feed_forward_norm = layer.norm(d);
  p.logits = head.matrix(shape.vocabulary, d, 0);
  p.final_norm = head.norm(d);
  p.layer_bytes = layer.bytes();
  p.head_bytes = head.bytes();

  g.cluster = plan_cluster(p, shape.dtype, tables.most, static_cast<std::int64_t>(gpu.shared_bytes));
  const std::int64_t units = shape.batch * shape.heads,
                     wanted = g.cluster.size > 0 ? 1 : (tables.most + keys_per_block - 1) / keys_per_block;
  p.heads.splits = small(std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, blocks / units)));
  p.rounds = small((units * p.heads.splits + blocks - 1) / blocks);
  with_gpu_type(shape.dtype, [&](auto zero) {
    using T = decltype(zero);
    Words w;
    p.layer_words = words_of<T>(p, nullptr, w);
    p.turn = small(std::clamp<std::int64_t>(words_in_cache / (8 * p.layer_words), 1, shape.layers));
    p.keys_at_once = small(((tables.most + p.heads.splits - 1) / p.heads.splits + 16) / 16 * 16);
    p.keys_at_once = std::min(p.keys_at_once, 1024);
    for (;; p.keys_at_once = p.keys_at_once / 2 / 16 * 16) {
      p.at = offsets_of<T>(p, blocks);
      g.shared_bytes = static_cast<std::size_t>(p.at.bytes);
      if (g.shared_bytes <= gpu.shared_bytes || p.keys_at_once < 32) break;
    }
  });
  if (g.cluster.size > 0 || (g.shared_bytes <= gpu.shared_bytes && p.keys_at_once > 0)) g.blocks = blocks;
  return g;
}

bool fits(const ModelShape& s) {
  if (s.dtype != Dtype::f32 && s.dtype != Dtype::bf16 && s.dtype != Dtype::f16) return false;
  const std::int64_t pack = 16 / static_cast<std::int64_t>(bytes_of(s.dtype)), block = 4 * pack;
  const std::int64_t groups = s.value_size / pack;
  return s.batch <= most_batch && s.vocabulary <= Draw::most && s.vocabulary % tile_rows == 0 && s.width % block == 0 &&
         s.inner % block == 0 && s.heads * s.value_size % block == 0 &&
         s.heads * (2 * s.key_size + s.value_size) % tile_rows == 0 && s.key_size % pack == 0 &&
         s.key_size <= (s.transform.any() ? most_transformed : 2 * 128) && s.value_size % pack == 0 &&
         s.value_size <= most_value_columns && std::has_single_bit(static_cast<std::uint64_t>(groups)) && groups <= 32;
}

// Byte offsets in the generator's memory.
struct Memory {
  std::int64_t entries, geometry, heads, words, arrived, bytes;

  Memory(const GenerationProblem& p) {
    std::int64_t at = rounded(p.layer_bytes * p.layers + p.head_bytes);
    const auto take = [&](std::int64_t size) {
      const std::int64_t begin = at;
      at += rounded(size);
      return begin;
    };
    entries = take(p.layers * static_cast<std::int64_t>(sizeof(LayerEntry)));
    geometry = take(p.geometries * static_cast<std::int64_t>(sizeof(HeadGeometry)));
    heads = take(p.plans * p.heads.count * static_cast<std::int64_t>(sizeof(HeadEntry)));
    words = take(8 * (p.turn * p.layer_words + static_cast<std::int64_t>(p.batch) * p.vocabulary));
    arrived = take(sizeof(unsigned));
    bytes = at;
  }
};

template <class T>
__global__ void pack_matrix(const T* from, std::int64_t row_stride, T* to, std::int64_t rows, std::int64_t columns) {
  constexpr int pack = 16 / sizeof(T), wide = 4 * pack;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  const std::int64_t row = i / columns, column = i % columns;
  const std::int64_t block = row / tile_rows * (columns / wide) + column / wide;
  const std::int64_t lane = row % tile_rows * 4 + column % wide / pack;
  to[(block * 32 + lane) * pack + column % pack] = from[row * row_stride + column];
}

template <class T>
__global__ void widen(const T* from, float* to, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = to_float(from[i]);
}

class Packer {
 public:
  Packer(char* base, const Launch& launch) : base_(base), launch_(launch) {}

  void matrix(const PackedMatrix& m, const Tensor& weight, const Tensor& bias) const {
    with_gpu_type(weight.dtype(), [&](auto zero) {
      using T = decltype(zero);
      run("pack_matrix", pack_matrix<T>, {blocks_for(weight.count(), 256), 256}, launch_, weight.as<const T>(),
          weight.stride(0), reinterpret_cast<T*>(base_ + m.blocks), weight.size(0), weight.size(1));
    });
    if (m.bias >= 0) vector(m.bias, bias);
  }
  void norm(const Norm& n, const Tensor& gain, const Tensor& bias) const {
    vector(n.gain, gain);
    vector(n.bias, bias);
  }

 private:
  void vector(std::int64_t at, const Tensor& from) const {
    with_gpu_type(from.dtype(), [&](auto zero) {
      using T = decltype(zero);
      run("widen", widen<T>, {blocks_for(from.count(), 256), 256}, launch_, from.as<const T>(),
          reinterpret_cast<float*>(base_ + at), from.count());
    });
  }
  char* base_;
  const Launch& launch_;
};

void pack_weights(const GenerationProblem& p, const Weights& w, char* memory, const Launch& launch) {
  for (std::size_t k = 0; k < w.layers.size(); ++k) {
    const LayerWeights& layer = w.layers[k];
    const Packer packer(memory + static_cast<std::int64_t>(k) * p.layer_bytes, launch);
    packer.matrix(p.qkv, layer.qkv, layer.qkv_bias);
    packer.matrix(p.output, layer.output, layer.output_bias);
    packer.matrix(p.feed_inner, layer.inner, layer.inner_bias);
    packer.matrix(p.feed_outer, layer.outer, layer.outer_bias);
    packer.norm(p.attention_norm, layer.attention_gain, layer.attention_bias);
    packer.norm(p.feed_forward_norm, layer.feed_forward_gain, layer.feed_forward_bias);
  }
  const Packer packer(memory + p.layers * p.layer_bytes, launch);
  packer.matrix(p.logits, w.output, {});
  packer.norm(p.final_norm, w.final_gain, w.final_bias);
}

void set_embedding(GenerationProblem& p, const EmbeddingArgs& e) {
  p.start = e.start.as<const float>();
  p.token = e.token_table.as<const float>();
  p.table_count = e.tables;
  for (int i = 0; i < e.tables; ++i)
    p.tables[i] = {e.positions[i].divisor, e.positions[i].table.size(0), e.positions[i].table.as<const float>()};
}

}  // namespace

bool supports(const ModelShape& shape) {
  const Gpu gpu = this_gpu();
  return gpu.blocks > 0 && fits(shape) && outline(shape, HostTables(shape), gpu).blocks > 0;
}

std::size_t generator_bytes(const ModelShape& shape) {
  const Generator g = outline(shape, HostTables(shape), this_gpu());
  return static_cast<std::size_t>(Memory(g.problem).bytes);
}

std::shared_ptr<const Generator> make_generator(const ModelShape& shape, const Weights& weights, void* memory,
                                                const Launch& launch) {
  const HostTables tables(shape);
  auto g = std::make_shared<Generator>(outline(shape, tables, this_gpu()));
  GenerationProblem& p = g->problem;
  const Memory at(p);
  char* base = static_cast<char*>(memory);
  pack_weights(p, weights, base, launch);
  set_embedding(p, weights.embedding);

  // Caches are scratch of one arena, so each layer's offset counts from the first layer's cache.
  std::vector<LayerEntry> entries;
  p.cache = weights.layers.front().keys.as<char>();
  for (std::size_t k = 0; k < weights.layers.size(); ++k) {
    const LayerWeights& layer = weights.layers[k];
    entries.push_back(
        {layer.keys.as<char>() - p.cache, layer.values.as<char>() - p.cache, layer.keys.size(1), tables.plan[k]});
  }
  const auto upload = [&](std::int64_t offset, const auto& table) {
    const std::size_t bytes = table.size() * sizeof(table[0]);
    check(cudaMemcpyAsync(base + offset, table.data(), bytes, cudaMemcpyHostToDevice, stream_of(launch)),
          "tables to the GPU");
  };
  upload(at.entries, entries);
  upload(at.geometry, tables.geometry);
  upload(at.heads, tables.heads);
  check(cudaMemsetAsync(base + at.words, 0, static_cast<std::size_t>(at.bytes - at.words), stream_of(launch)),
        "cudaMemsetAsync");
  check(cudaStreamSynchronize(stream_of(launch)), "packing the weights");  // the tables end with this function
  p.weights = base;
  p.entries = reinterpret_cast<const LayerEntry*>(base + at.entries);
  p.heads.geometry = reinterpret_cast<const HeadGeometry*>(base + at.geometry);
  p.heads.entries = reinterpret_cast<const HeadEntry*>(base + at.heads);
  p.words = reinterpret_cast<Word*>(base + at.words);
  p.arrived = reinterpret_cast<unsigned*>(base + at.arrived);
  return g;
}

void generate(const Args& args, const Launch& launch) {
  const Generator& g = *args.generator;
  const PositionSpan span{args.bytes.as<std::uint8_t>(),
                          args.log_probabilities.as<float>(),
                          args.bytes.size(1),
                          args.prompted,
                          args.first_sequence,
                          static_cast<std::int32_t>(args.first),
                          static_cast<std::int32_t>(args.count),
                          args.sampling};
  if (g.cluster.size > 0) {
    launch_clusters(g.problem, g.cluster, span, g.shape.dtype, launch);
    return;
  }
  with_gpu_type(g.shape.dtype,
                [&](auto zero) { launch_generate<decltype(zero)>(g.problem, span, g.blocks, g.shared_bytes, launch); });
}

}  // namespace longstride::generation
