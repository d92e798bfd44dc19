// The Compressive Transformer's attention (Rae et al. 2020, Algorithms 1 and 2) for one row of the batch, in plain
// loops over lists of visible rows: no hidden rows, no buffers, no masks.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "framework/mixers/distance/config.h"

namespace longstride::testing {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;

struct NaiveWeights {
  std::int64_t heads = 0, key_size = 0, value_size = 0;
  std::function<double(std::int64_t row, std::int64_t column)> query_key_value, output, compress;
  std::function<double(std::int64_t distance, std::int64_t head, std::int64_t element)> table;  // T
  std::function<double(std::int64_t head, std::int64_t element)> content_bias, position_bias;   // u, v
};

class NaiveCompression {
 public:
  NaiveCompression(const NaiveWeights& weights, const MemoryConfig& config) : w_(weights), c_(config) {}

  // The branch's output for the next segment of the stream, which is then remembered.
  Rows step(const Rows& segment) {
    const std::size_t s = segment.size();
    Rows x = compressed;
    x.insert(x.end(), memory.begin(), memory.end());
    x.insert(x.end(), segment.begin(), segment.end());
    received.assign(x.size(), 0.0);
    const Rows out = attend(x, s);
    const auto oldest = received.begin() + static_cast<std::ptrdiff_t>(compressed.size());
    Vector usage(oldest, oldest + static_cast<std::ptrdiff_t>(std::min(s, memory.size())));
    memory.insert(memory.end(), segment.begin(), segment.end());
    loss = 0;
    if (static_cast<std::int64_t>(memory.size()) <= c_.length) return out;
    const Rows evicted(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(s));
    memory.erase(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(s));
    const Rows added = compress(evicted, usage);
    loss = difference(segment, evicted, added);
    compressed.insert(compressed.end(), added.begin(), added.end());
    const auto extra = std::ssize(compressed) - c_.compressed;
    if (extra > 0) compressed.erase(compressed.begin(), compressed.begin() + extra);
    return out;
  }

  Rows compressed, memory;  // visible, the oldest first
  Vector received;          // by every row of [compressed | memory | segment] in the last step
  double loss = 0;          // mean over queries and elements of the last step's squared differences; 0 if none

 private:
  double projected(const Vector& x, std::int64_t row) const {
    double sum = 0;
    for (std::size_t c = 0; c < x.size(); ++c) sum += w_.query_key_value(row, static_cast<std::int64_t>(c)) * x[c];
    return sum;
  }
  double query(const Vector& x, std::int64_t h, std::int64_t e) const { return projected(x, h * w_.key_size + e); }
  double key(const Vector& x, std::int64_t h, std::int64_t e) const {
    return projected(x, (w_.heads + h) * w_.key_size + e);
  }
  double value(const Vector& x, std::int64_t h, std::int64_t e) const {
    return projected(x, 2 * w_.heads * w_.key_size + h * w_.value_size + e);
  }
  static Vector softmax(Vector scores) {
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s - most);
    for (double& s : scores) s /= sum;
    return scores;
  }

  Rows attend(const Rows& x, std::size_t segment) {
    Rows out;
    const double scale = 1 / std::sqrt(static_cast<double>(w_.key_size));
    for (std::size_t i = x.size() - segment; i < x.size(); ++i) {
      Vector all;
      for (std::int64_t h = 0; h < w_.heads; ++h) {
        Vector scores;
        for (std::size_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::int64_t e = 0; e < w_.key_size; ++e) {
            const double q = query(x[i], h, e);
            score += (q + w_.content_bias(h, e)) * key(x[j], h, e) +
                     (q + w_.position_bias(h, e)) * w_.table(static_cast<std::int64_t>(i - j), h, e);
          }
          scores.push_back(scale * score);
        }
        const Vector p = softmax(scores);
        for (std::int64_t e = 0; e < w_.value_size; ++e) {
          double sum = 0;
          for (std::size_t j = 0; j <= i; ++j) sum += p[j] * value(x[j], h, e);
          all.push_back(sum);
        }
        for (std::size_t j = 0; j <= i; ++j) received[j] += p[j];
      }
      Vector row;
      for (std::size_t c = 0; c < x[i].size(); ++c) {
        row.push_back(0);
        for (std::size_t e = 0; e < all.size(); ++e)
          row.back() += w_.output(static_cast<std::int64_t>(c), static_cast<std::int64_t>(e)) * all[e];
      }
      out.push_back(row);
    }
    return out;
  }

  // The rows that become row r.
  std::vector<std::size_t> sources(std::size_t r, std::size_t rows) const {
    std::vector<std::size_t> from;
    const auto rate = static_cast<std::size_t>(c_.rate);
    for (std::size_t k = 0; k < rate; ++k)
      from.push_back(c_.compress == Compression::dilated ? r + k * rows : r * rate + k);
    return from;
  }
  Rows most_used(const Rows& evicted, const Vector& usage, std::size_t count) const {
    std::vector<std::size_t> kept;
    while (kept.size() < count) {
      std::size_t best = evicted.size();
      for (std::size_t r = 0; r < evicted.size(); ++r) {
        if (std::find(kept.begin(), kept.end(), r) != kept.end()) continue;
        if (best == evicted.size() || usage[r] > usage[best]) best = r;
      }
      kept.push_back(best);
    }
    std::sort(kept.begin(), kept.end());
    Rows out;
    for (const std::size_t r : kept) out.push_back(evicted[r]);
    return out;
  }
  Rows compress(const Rows& evicted, const Vector& usage) const {
    const std::size_t rows = evicted.size() / static_cast<std::size_t>(c_.rate), width = evicted[0].size();
    if (c_.compress == Compression::most_used) return most_used(evicted, usage, rows);
    Rows out;
    for (std::size_t r = 0; r < rows; ++r) {
      const std::vector<std::size_t> from = sources(r, rows);
      Vector row;
      for (std::size_t c = 0; c < width; ++c) {
        double sum = 0, most = evicted[from[0]][c], mapped = 0;
        for (std::size_t k = 0; k < from.size(); ++k) {
          sum += evicted[from[k]][c];
          most = std::max(most, evicted[from[k]][c]);
          for (std::size_t e = 0; c_.learns_to_compress() && e < width; ++e)
            mapped += w_.compress(static_cast<std::int64_t>(c), static_cast<std::int64_t>(k * width + e)) *
                      evicted[from[k]][e];
        }
        row.push_back(c_.compress == Compression::mean  ? sum / static_cast<double>(c_.rate)
                      : c_.compress == Compression::max ? most
                                                        : mapped);
      }
      out.push_back(row);
    }
    return out;
  }

  // A(q, m) of one query and head.
  Vector content_attention(const Vector& x, const Rows& m, std::int64_t h) const {
    Vector scores;
    for (const Vector& row : m) {
      scores.push_back(0);
      for (std::int64_t e = 0; e < w_.key_size; ++e)
        scores.back() += query(x, h, e) * key(row, h, e) / std::sqrt(static_cast<double>(w_.key_size));
    }
    const Vector p = softmax(scores);
    Vector out;
    for (std::int64_t e = 0; e < w_.value_size; ++e) {
      out.push_back(0);
      for (std::size_t j = 0; j < m.size(); ++j) out.back() += p[j] * value(m[j], h, e);
    }
    return out;
  }
  double difference(const Rows& segment, const Rows& evicted, const Rows& added) const {
    double sum = 0;
    for (const Vector& x : segment)
      for (std::int64_t h = 0; h < w_.heads; ++h) {
        const Vector a = content_attention(x, evicted, h), b = content_attention(x, added, h);
        for (std::size_t e = 0; e < a.size(); ++e) sum += (b[e] - a[e]) * (b[e] - a[e]);
      }
    return sum / static_cast<double>(std::ssize(segment) * w_.heads * w_.value_size);
  }

  NaiveWeights w_;
  MemoryConfig c_;
};

}  // namespace longstride::testing
