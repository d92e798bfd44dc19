#include <algorithm>
#include <numeric>

#include "datasets/prepare/examples/task.h"

namespace longstride {
namespace {

constexpr int deepest = 10;
constexpr std::int64_t most_arguments = 10;
constexpr double operation_share = 0.25;
constexpr std::int64_t shortest = 501, longest = 1999;  // tokens, each a byte

// A byte per token, operations with their brackets: "<": minimum, ">": maximum, "~": median, rounded down, "+": sum
// modulo 10.
constexpr char operations[] = {'<', '>', '~', '+'}, end_of_list = ']';

int result_of(char operation, std::vector<int>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  switch (operation) {
    case '<':
      return values.front();
    case '>':
      return values.back();
    case '~':
      return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
    default:
      return std::accumulate(values.begin(), values.end(), 0) % 10;
  }
}

// Appends a digit or a list; its value.
int append(Draws& draws, int depth, std::vector<std::uint8_t>& bytes) {
  const bool is_list = depth < deepest && draws.uniform() <= operation_share;
  if (!is_list) {
    const auto digit = static_cast<int>(draws.below(10));
    bytes.push_back(static_cast<std::uint8_t>('0' + digit));
    return digit;
  }
  const char operation = operations[draws.below(4)];
  bytes.push_back(static_cast<std::uint8_t>(operation));
  std::vector<int> values(static_cast<std::size_t>(2 + draws.below(most_arguments - 1)));
  for (int& value : values) {
    if (std::ssize(bytes) > longest) return 0;  // the attempt has failed
    value = append(draws, depth + 1, bytes);
  }
  bytes.push_back(end_of_list);
  return result_of(operation, values);
}

}  // namespace

std::optional<Example> make_listops(Draws& draws) {
  Example out;
  out.label = static_cast<std::uint16_t>(append(draws, 1, out.bytes));
  if (std::ssize(out.bytes) < shortest || std::ssize(out.bytes) > longest) return {};
  return out;
}

}  // namespace longstride
