#include "kernels/embedding/embedding.h"

#include <algorithm>

#include "kernels/base/ids.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void EmbeddingArgs::check(Device device) const {
  LONGSTRIDE_CHECK(tokens.rank() == 2, "tokens are {}", tokens.shape().text());
  check_ids(tokens, tokens.count(), "tokens");
  if (starts.given()) {
    check_vector(starts, tokens.size(0), Dtype::u8, "starts");
    LONGSTRIDE_CHECK(first == 0 && first_at == nullptr, "rows that start at position {}", first);
  }
  if (begin.given()) {
    check_vector(begin, tokens.count(), Dtype::i32, "begin");
    LONGSTRIDE_CHECK(first_at == nullptr, "documents while decoding");
  }
  LONGSTRIDE_CHECK(token_table.rank() == 2, "the token table is {}", token_table.shape().text());
  const std::int64_t width = this->width();
  LONGSTRIDE_CHECK(band >= 0 ? !(own && start.given()) : start.given() != own,
                   "a start vector exactly where slots take the token before them");
  LONGSTRIDE_CHECK(!own || (!starts.given() && first_at == nullptr), "rows of their own tokens that start, or decode");
  check_computes(device, y, "y");
  check_vector(y, tokens.count() * width, y.dtype(), "y");
  const Dtype exact = exact_type(device, y.dtype());
  if (start.given()) check_vector(start, width, exact, "start");
  const auto check_table = [&](const Tensor& table, const char* name) {
    LONGSTRIDE_CHECK(table.rank() == 2 && table.size(1) == width && table.size(0) > 0, "{} is {} for width {}", name,
                     table.shape().text(), width);
    check_vector(table, table.count(), exact, name);
  };
  check_table(token_table, "token_table");
  for (int i = 0; i < tables; ++i) {
    check_table(positions[i].table, "position table");
    LONGSTRIDE_CHECK(positions[i].divisor > 0, "a position table has divisor {}", positions[i].divisor);
  }
}

namespace cpu {
namespace {

// The rows of the tables that one slot sums: the token's (or the start vector) first, null where a band lacks it, then
// one per position table.
template <class T>
struct TableRows {
  T* row[EmbeddingArgs::max_tables + 1];
  int count;
};

template <class T>
TableRows<T> table_rows_of(const EmbeddingArgs& args, std::int64_t sequence, std::int64_t slot) {
  const std::int64_t width = args.width(), at = sequence * args.tokens.size(1) + slot;
  const std::int64_t begin = args.begin.given() ? args.begin.as<const std::int32_t>()[at] : 0;
  const std::int64_t position = args.first + slot - (args.restart ? begin : 0);
  const auto* starts = args.starts.as<const std::uint8_t>();
  const auto row_of = [&](std::int64_t read) -> T* {
    const std::int64_t row = ids_of(args.tokens)[read] - std::max<std::int64_t>(args.band, 0);
    const bool lacks = args.band >= 0 && (row < 0 || row >= args.token_table.size(0));
    return lacks ? nullptr : args.token_table.as<T>() + row * width;
  };
  TableRows<T> rows;
  if (args.own)
    rows.row[0] = row_of(at);
  else if (args.first + slot == begin && (slot > 0 || starts == nullptr || starts[sequence] != 0))
    rows.row[0] = args.start.as<T>();
  else
    rows.row[0] = row_of(args.first == 0 && starts == nullptr ? at - 1 : at);
  for (int i = 0; i < args.tables; ++i) {
    const PositionTable& p = args.positions[i];
    rows.row[i + 1] = p.table.as<T>() + position / p.divisor % p.table.size(0) * width;
  }
  rows.count = args.tables + 1;
  return rows;
}

template <class T>
void forward(const EmbeddingArgs& args) {
  const std::int64_t batch = args.tokens.size(0), seq = args.tokens.size(1), width = args.width();
  T* out = args.y.as<T>();
  const T scale = static_cast<T>(args.scale);
#pragma omp parallel for schedule(static) if (batch * seq * width > 16384)
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    const TableRows<const T> rows = table_rows_of<const T>(args, i / seq, i % seq);
    T* y = out + i * width;
    if (rows.row[0] == nullptr) {
      std::fill_n(y, width, T(0));
    } else {
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) y[j] = scale * rows.row[0][j];
    }
    for (int k = 1; k < rows.count; ++k) {
      const T* row = rows.row[k];
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) y[j] += row[j];
    }
  }
}

// Threads share the columns, not the positions, so no two write the same element and each element sums the positions in
// order.
template <class T>
void backward(const EmbeddingBackwardArgs& args) {
  constexpr std::int64_t block = 64;  // columns: a few cache lines
  const std::int64_t batch = args.tokens.size(0), seq = args.tokens.size(1), width = args.width();
  const T* gradient = args.y.as<const T>();
#pragma omp parallel for schedule(static) if (batch * seq * width > 16384)
  for (std::int64_t begin = 0; begin < width; begin += block) {
    const std::int64_t count = std::min(block, width - begin);
    for (std::int64_t i = 0; i < batch * seq; ++i) {
      const TableRows<T> rows = table_rows_of<T>(args, i / seq, i % seq);
      const T* dy = gradient + i * width + begin;
      for (int k = rows.row[0] != nullptr ? 0 : 1; k < rows.count; ++k) {
        T* row = rows.row[k] + begin;
        const T by = k == 0 ? static_cast<T>(args.scale) : T(1);
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) row[j] += by * dy[j];
      }
    }
  }
}

}  // namespace

void embedding(const EmbeddingArgs& args, const Launch&) {
  with_float_type(args.y.dtype(), [&](auto zero) { forward<decltype(zero)>(args); });
}

void embedding_backward(const EmbeddingBackwardArgs& args, const Launch&) {
  with_float_type(args.y.dtype(), [&](auto zero) { backward<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
