// The warpgroup that serves the walkers of attention backward over a band, for heads of at most 32: it loads tiles,
// computes the statistics of query tiles, and dQ.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_small_block.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T>
struct BandBackwardServer : BandBackwardSmallBlock<T> {
  using Block = BandBackwardSmallBlock<T>;
  using Block::key_bytes, Block::tile_bytes, Block::ds_bytes, Block::key_row, Block::rows;
  using Block::problem, Block::shared, Block::thread, Block::lane, Block::warp, Block::task, Block::at;
  using Block::walkers, Block::lead, Block::slots, Block::late_rooms;
  using typename Block::OutputRow;

  __device__ explicit BandBackwardServer(const Block& block) : Block(block) {}

  // A tile, as its class's base and its first entry there. Tiles come in order.
  struct Cursor {
    std::int32_t base, entry;
  };
  __device__ Cursor cursor_at(std::int32_t tile) const {
    const BandBackwardPlace place = this->place_of(tile);
    return {place.base, (tile - place.first) * rows};
  }
  __device__ void advance(Cursor& cursor) const {
    cursor.entry += rows;
    if (problem.chain > 1 && cursor.entry >= problem.set.length) cursor = {cursor.base + 1, 0};
  }

  // ---- Loads: of query tiles by the first warp, of key tiles by the second ----

  struct Next {
    std::int32_t tile, end;
    Cursor at;
    RingSlot slot;
  };
  __device__ void load(char* to, const RowMaps& first, const RowMaps& second, const Cursor& cursor,
                       std::uint64_t* full) const {
    const Coordinates corner = this->corner(cursor.base, cursor.entry);
    barrier_arrive_expect(full, tile_bytes);
    tma_load(to, this->map_of(first, cursor.base), corner, full);
    tma_load(to + key_bytes, this->map_of(second, cursor.base), corner, full);
  }
  // Loads a query tile, if there is room.
  __device__ void load_query(Next& next) const {
    if (next.tile >= next.end || !this->passed(this->query_empty(next.slot.index), next.slot.parity ^ 1)) return;
    if (lane == 0) {
      load(this->query_tile(next.slot.index), problem.q, problem.dout, next.at, this->query_full(next.slot.index));
      tma_prefetch(this->map_of(problem.o, next.at.base), this->corner(next.at.base, next.at.entry));
    }
    ++next.tile;
    advance(next.at);
    next.slot.advance(slots);
  }
  // Loads key tiles below `end`, for which there is room.
  __device__ void load_keys(Next& next, std::int32_t end) const {
#pragma unroll 1
    for (; next.tile < min(end, next.end); ++next.tile) {
      if (lane == 0)
        load(this->key_tile(next.slot.index), problem.k, problem.v, next.at, this->key_full(next.slot.index));
      advance(next.at);
      next.slot.advance(this->stages_of(problem.reach));
    }
  }

  // ---- Statistics ----

  // A thread's share of the rows of o, tile after tile.
  struct OutputRows {
    Cursor at;
    const T* o;
    const float* lse;
    std::int32_t left;  // entries from the thread's row to the class's end
    OutputRow row;

    __device__ OutputRows(const BandBackwardServer& server, const Cursor& cursor) : at(cursor) { find(server); }
    __device__ void find(const BandBackwardServer& server) {
      const BandBackwardSmallTask& task = server.task;
      const Gradient& output = server.problem.output;
      const std::int32_t entry = at.entry + server.thread / 2;
      const std::int64_t position = at.base + static_cast<std::int64_t>(entry) * task.step;
      left = task.length_from(server.problem, at.base) - entry;
      o = static_cast<const T*>(output.data) + task.sequence * output.stride[0] + position * output.stride[1] +
          task.head * output.stride[2] + server.thread % 2 * OutputRow::count * 8;
      lse = server.problem.lse +
            (static_cast<std::int64_t>(task.sequence) * server.problem.heads + task.head) * server.problem.n + position;
    }
    __device__ void advance(const BandBackwardServer& server) {
      const std::int32_t base = at.base;
      server.advance(at);
      if (at.base != base) {
        find(server);
      } else {
        left -= rows;
        o += static_cast<std::int64_t>(rows * server.task.step) * server.problem.output.stride[1];
        lse += rows * server.task.step;
      }
    }
    __device__ void read(const BandBackwardServer& server) {
#pragma unroll
      for (int i = 0; i < OutputRow::count; ++i) {
        const int column = (server.thread % 2 * OutputRow::count + i) * 8;
        row.o[i] =
            left > 0 && column < server.problem.output.size ? __ldg(reinterpret_cast<const uint4*>(o) + i) : uint4{};
      }
      row.lse = left > 0 ? __ldg(lse) : __builtin_huge_valf();
    }
  };
  struct Known {
    std::int32_t tile, end;  // the tile whose statistics come next
    RingSlot slot;
    OutputRows outputs;
  };
  // Waits for a query tile; the loading warp loads what fits meanwhile.
  __device__ void compute_statistics(Known& known, Next& queries) const {
    const RingSlot& slot = known.slot;
    if (warp == 0)
      while (!this->passed(this->query_full(slot.index), slot.parity)) load_query(queries);
    else
      barrier_wait(this->query_full(slot.index), slot.parity);
    this->write_statistics(known.outputs.row, this->query_tile(slot.index) + key_bytes, this->statistics(slot.index));
    barrier_arrive(this->statistics_full(slot.index));
    known.slot.advance(slots);
    ++known.tile;
  }
  __device__ void read_ahead(Known& known) const {
    if (known.tile >= known.end) return;
    known.outputs.advance(*this);
    known.outputs.read(*this);
  }

  // ---- dQ ----

  // The key tiles that are in use, from the first on.
  struct Keys {
    std::int32_t first;
    int stage, walker;
  };
  __device__ void multiply(float (&dq)[small_head / 2], std::int32_t query, const Keys& keys, int ds_slot) const {
    const std::uint64_t all_ds = descriptor<128>(shared + at.ds),
                        all_keys = descriptor<key_row>(shared + at.keys, rows * key_row);
    // The keys have arrived, as walkers wait for them before they hand dS over.
    int stage = keys.stage, walker = keys.walker;
#pragma unroll 1
    for (std::int32_t key = keys.first; key <= query; ++key) {
      const int ahead = query - key, tile = ahead < walkers ? this->ds_tile(ds_slot, ahead)
                                                            : this->late_tile(walker * late_rooms + (query & 1));
      const std::uint64_t a = advanced(all_ds, tile * ds_bytes), b = advanced(all_keys, stage * tile_bytes);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        wgmma<T, small_head, true>(dq, advanced(a, i * 32), advanced(b, i * 16 * key_row), i > 0 || key > keys.first);
      wgmma_commit();
      stage = next_slot(stage, this->stages_of(problem.reach));
      walker = next_slot(walker, walkers);
    }
  }
  // Says that a query tile's dS has been read.
  __device__ void release(std::int32_t query, const Keys& keys, int ds_slot) const {
    if (lane != 0) return;
    barrier_arrive(this->ds_empty(ds_slot));
    int walker = keys.walker;
    for (std::int32_t key = keys.first; key + walkers <= query; ++key) {
      barrier_arrive(this->late_empty(walker * late_rooms + (query & 1)));
      walker = next_slot(walker, walkers);
    }
  }
  __device__ void store(const float (&dq)[small_head / 2], const Cursor& cursor) const {
    this->forget();
    this->put(walkers * tile_bytes, dq, problem.scale);
    proxy_fence();
    __syncwarp();
    if (lane == 0) {
      this->leave(problem.dq_maps, cursor.base, task.length_from(problem, cursor.base), cursor.entry,
                  walkers * tile_bytes);
      store_commit();
    }
  }
  __device__ void leave_keys(Keys& keys, std::int32_t first) const {
#pragma unroll 1
    for (; keys.first < first; ++keys.first) {
      keys.stage = next_slot(keys.stage, this->stages_of(problem.reach));
      keys.walker = next_slot(keys.walker, walkers);
    }
  }

  __device__ void serve() const {
    const std::int32_t first = this->first_key(), end = this->query_end();
    const int stages = this->stages_of(problem.reach), ds_slots = this->ds_slots_of(problem.reach);
    const Cursor begin = cursor_at(task.begin);
    Next next_query{task.begin, end, begin, {}}, next_key{first, task.end, cursor_at(first), {}};
    if (warp == 0)
#pragma unroll 1
      for (int i = 0; i < slots; ++i) load_query(next_query);
    if (warp == 1) load_keys(next_key, first + stages);
    Known known{task.begin, end, {}, OutputRows(*this, begin)};
    known.outputs.read(*this);
#pragma unroll 1
    for (int i = 0; i < lead && known.tile < end; ++i) {
      compute_statistics(known, next_query);
      read_ahead(known);
    }

    Cursor cursor = begin;
    Keys keys{first, 0, 0};
    RingSlot ds;
#pragma unroll 1
    for (std::int32_t query = task.begin; query < task.end; ++query) {
      float dq[small_head / 2];
      barrier_wait(this->ds_full(ds.index), ds.parity);
      multiply(dq, query, keys, ds.index);
      const bool more = known.tile < end;
      if (more) compute_statistics(known, next_query);
      wgmma_wait<0>();
      wgmma_hold(dq);
      release(query, keys, ds.index);
      ds.advance(ds_slots);
      store(dq, cursor);
      if (more) read_ahead(known);  // not before the fence in `store`, which would wait for what is read
      if (query + 1 == task.end) break;
      advance(cursor);
      leave_keys(keys, max(this->first_key(query + 1), first));
      named_barrier_sync(1, warpgroup_threads);  // all warps have read the key tiles before keys.first
      if (warp == 0) load_query(next_query);
      if (warp == 1) load_keys(next_key, keys.first + stages);
    }
#pragma unroll 1
    while (known.tile < end) {
      compute_statistics(known, next_query);
      read_ahead(known);
    }
    this->forget();
  }
};

}  // namespace longstride::kernels::cuda::sm90
