// The scan on a GPU: what its kernels are told, passed by value.
//
// A chunk of scan_chunk positions is one block's work. With W_t the product of the decays from the chunk's start
// through position t, E_t that of those behind t to its end, and D_ij that of those behind j through i:
//   sums       X = (E K)^T V for every chunk, and its whole decay
//   carry      S = decay S + X over the chunks, in f32; S before every chunk stays where X was
//   outputs    O = W Q S + (Q K^T . D) V
//   gradients  the same backward: X' = (W Q)^T dO, carried from the last chunk to the first, and with G behind a chunk
//              dV = E K G + (Q K^T . D)^T dO;  dQ = W dO S^T + dA K,  dK = E V G^T + dA^T Q,  dA = dO V^T . D
// No decay is divided by and no sum of logarithms subtracted: D comes from products of at most 16 decays, to the end of
// j's run of 16 positions, of the whole runs between, and from the start of i's. So where a decay is 0, as where a
// group begins, all that would cross is exactly 0. In both directions a position reads S before and behind its chunk.
#pragma once
#include <cstdint>

#include "kernels/base/head_matrix.h"
#include "kernels/base/host_device.h"
#include "kernels/scan/scan.h"

namespace longstride::kernels::cuda::scanning {

// States of all chunks, (units, chunks, key size, columns) f32; a unit is a head of a sequence.
struct ChunkStates {
  float *before = nullptr, *behind = nullptr;  // the chunk; behind: in both directions, or of gradients
};

struct ScanCall {
  HeadMatrix q, k, v, o, dout, dq, dk, dv;
  const float *decay = nullptr, *beta = nullptr;
  const std::int32_t* begin = nullptr;
  float* denominator = nullptr;  // (units, n)
  const float* delta = nullptr;  // the same, if it is normalised: dout . o
  float* whole = nullptr;        // (units, chunks, decays): decays over a chunk
  float *ddecay = nullptr, *dbeta = nullptr;
  HeadMatrix e;  // f32, delta: du_t, of which dv is b_t times; v is then f32, v_t - R_t^T k_t, of which u is
  ChunkStates states, gradients;
  char* kept = nullptr;            // walks: a block's states within its run
  void* inverses = nullptr;        // walks of delta: X of every chunk, as q
  float* transitions = nullptr;    // the same: M of every run, (units, runs, key size, key size)
  std::int32_t* strong = nullptr;  // walks of decays per channel: 1 for a run with a strong chunk, (units, runs)
  std::int32_t run_chunks = 0;     // chunks of walk_chunk positions in a run; `chunks` then counts runs
  std::int32_t n = 0, heads = 0, units = 0, chunks = 0;
  std::int32_t key_size = 0, value_size = 0, columns = 0;
  bool channels = false, both = false, normalised = false, scaled = false;  // scaled: by decays or groups
  bool keys_aligned = true, values_aligned = true;                          // rows are whole words of 16 bytes

  LONGSTRIDE_HOST_DEVICE std::int32_t decays() const { return channels ? key_size : 1; }
};

// A row of keys is the chunk's left matrix, one of values its right.
enum class Sums : std::uint8_t { keys_and_values, queries_and_gradients };

// Walks over runs of chunks (walk/), of 16-bit rows.
inline constexpr int walk_chunk = 64, most_run_chunks = 8;
// Bytes of a state of heads padded to these sizes, tile and z; blocks that run at once.
constexpr std::int64_t walk_state_bytes(int key_size, int value_size) { return key_size * (2 * value_size + 4); }

// The delta rule's part of a pass. With N the strictly earlier part of K K^T . D and b the diagonal of beta,
//   forward   (1 + N b) Y = V - W K S              S behind: decay S + (E K)^T b Y          Y: v_t - R_t^T k_t
//   backward  (1 + N^T b) Y = (Q K^T . D)^T dO + E K G   G before: decay G + (W Q)^T dO - (W K)^T b Y      Y: du_t
// solved for every chunk by itself with rights W K, or E K, so that the states need two products a chunk.
struct DeltaPass {
  bool backward = false;
  float* fixed = nullptr;                       // chunks of rows: V or (Q K^T . D)^T dO, solved; then Y
  void *moved = nullptr, *added = nullptr;      // forward W K, backward E K, solved; and the other, as it is; as q
  std::int32_t key_width = 0, value_width = 0;  // elements of these rows, multiples of 16
};

// Launches; T is __nv_bfloat16, __half or float.
// X of every chunk: with the decays to its end, or else from its start.
template <class T>
void sum_chunks(const ScanCall&, Sums, bool to_end, float* states, const Launch&);
// X becomes S before every chunk, from first on, or backwards S behind it; null: 0, and not written.
void carry(const ScanCall&, bool backwards, float* states, const float* first, float* last, const Launch&);
template <class T>
void outputs(const ScanCall&, const Launch&);
template <class T>
void gradients(const ScanCall&, const Launch&);
template <class T>
void gradients_of_channels(const ScanCall&, const Launch&);

// The same of runs, whose states are those of `chunks`; T is 16-bit.
template <class T>
void sum_runs(const ScanCall&, bool backwards, const Launch&);
template <class T>
void outputs_of_runs(const ScanCall&, const Launch&);
template <class T>
void gradients_of_runs(const ScanCall&, const Launch&);
// The same of bf16 runs of wide heads, but for gradients of decays, on Hopper (sm90/).
void sum_wide_runs(const ScanCall&, bool backwards, const Launch&);
void outputs_of_wide_runs(const ScanCall&, const Launch&);
void gradients_of_wide_runs(const ScanCall&, const Launch&);
template <class T>
void sum_channel_runs(const ScanCall&, bool backwards, const Launch&);
template <class T>
void outputs_of_channel_runs(const ScanCall&, const Launch&);
template <class T>
void gradients_of_channel_runs(const ScanCall&, const Launch&);
// The same of the runs whose decays are weak; those above take the strong ones.
template <class T>
void outputs_of_weak_runs(const ScanCall&, const Launch&);
template <class T>
void gradients_of_weak_runs(const ScanCall&, const Launch&);
template <class T>
void delta_inverses(const ScanCall&, const Launch&);
// S before every run, or G behind it.
template <class T>
void delta_runs(const ScanCall&, bool backwards, const float* first, float* last, const Launch&);
// The scan over runs: S, or G, from what every run adds and its transition.
void carry_delta(const ScanCall&, bool backwards, const float* first, float* last, const Launch&);
template <class T>
void delta_outputs_of_runs(const ScanCall&, const Launch&);
template <class T>
void delta_gradients_of_runs(const ScanCall&, const Launch&);

// Solves every chunk.
template <class T>
void solve_chunks(const ScanCall&, const DeltaPass&, const Launch&);
// Y from S before every chunk (backward: G behind), which is written: from `first` on, or, if `known`, read.
template <class T>
void delta_states(const ScanCall&, const DeltaPass&, bool known, float* states, const float* first, float* last,
                  const Launch&);
// dv and dbeta.
template <class T>
void delta_rows(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
