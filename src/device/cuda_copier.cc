// Bytes go through a few chunks of the card's memory: packed there by a kernel and copied out
// whole, or copied in whole and spread by a kernel, so that the bus sees large copies however small
// rows and pages are. Kernels and copies have a stream each: while one chunk is copied the kernel
// works on another. What is in large pieces anyway is copied directly.

#include "src/device/cuda_copier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "src/device/cuda_blocks.h"
#include "src/device/cuda_handles.h"

namespace parkade {
namespace {

constexpr std::size_t kChunks = 4;
constexpr std::uint64_t kChunkBytes = 4u << 20;
// What one group of threads copies, and most of those in a chunk.
constexpr std::uint64_t kPieceBytes = 64u << 10;
constexpr std::size_t kMostPieces = 8192;
// From here on a copy of its own costs no more than the way through a chunk.
constexpr std::uint64_t kDirectBytes = 512u << 10;
// Between half and all of so much of that is under way when a call returns: whoever has a budget
// of time must notice what it costs.
constexpr std::uint64_t kMostDirectBytes = 32u << 20;

// Owners of memory that the card still reads.
class Owners {
 public:
  struct Held {
    Owners* list = nullptr;
    std::shared_ptr<const void> owner;
  };

  Held* Add(std::shared_ptr<const void> owner) {
    auto held = std::make_unique<Held>(Held{this, std::move(owner)});
    Held* added = held.get();
    absl::MutexLock lock(&mu_);
    held_.emplace(added, std::move(held));
    return added;
  }
  void Drop(Held* held) {
    std::unique_ptr<Held> dropped;  // freed after the lock
    absl::MutexLock lock(&mu_);
    const auto found = held_.find(held);
    if (found == held_.end()) return;
    dropped = std::move(found->second);
    held_.erase(found);
  }
  void DropAll() {
    std::map<Held*, std::unique_ptr<Held>> dropped;
    absl::MutexLock lock(&mu_);
    dropped.swap(held_);
  }

 private:
  absl::Mutex mu_;
  std::map<Held*, std::unique_ptr<Held>> held_ ABSL_GUARDED_BY(mu_);
};

// Runs on a thread of CUDA's, which may call nothing of CUDA.
void CUDART_CB LetGo(void* data) {
  auto* held = static_cast<Owners::Held*>(data);
  held->list->Drop(held);
}

struct Chunk {
  CudaMemory packed;
  PinnedMemory table;
  PinnedMemory bounce;  // for memory of the host that is not page-locked
  CudaEvent copied;     // on the copies' stream
  CudaEvent moved;      // on the kernels' stream
  bool used = false;
  // What the bounce buffer holds for the host, once `copied` has happened.
  char* deferred_to = nullptr;
  std::uint64_t deferred_bytes = 0;
};

class CudaCopier : public StageCopier {
 public:
  CudaCopier(int device, cudaStream_t engine)
      : name_(absl::StrCat("cuda", device)), device_(device), engine_(engine) {}
  ~CudaCopier() override {
    (void)Wait();  // swallow: nobody is left to be told
    const WithDevice with(device_);
    card_.reset();
  }

  absl::Status Open();
  const std::string& name() const override { return name_; }
  absl::Status CopyOut(absl::Span<const PlaneRun> runs, char* host) override;
  absl::Status CopyIn(absl::Span<const PlaneRun> runs, const char* host,
                      std::shared_ptr<const void> owner) override;
  absl::Status Wait() override;

 private:
  struct Resources {
    CudaStream copies;
    CudaStream kernels;
    CudaStream releases;
    CudaEvent engine;                 // what the engine had queued
    CudaEvent ordered;                // between copies that go directly and kernels
    std::array<CudaEvent, 2> direct;  // of copies that go directly, every half of what may wait
    std::array<Chunk, kChunks> chunks;
  };
  // One call's way.
  struct Call {
    bool out = false;
    bool pinned = false;
    char* to = nullptr;
    const char* from = nullptr;
  };

  absl::Status Begin();
  absl::Status Move(const Call& call);
  absl::Status MoveDirectly(const Call& call, const CopyBlock& block);
  absl::Status BoundDirect(std::uint64_t bytes);
  absl::Status MovePacked(const Call& call, absl::Span<const CopyBlock> pieces);
  absl::Status MoveChunk(const Call& call, absl::Span<const CopyBlock> pieces);
  absl::Status PackOut(const Call& call, Chunk& chunk, std::uint32_t count, std::uint64_t offset,
                       std::uint64_t bytes);
  absl::Status SpreadIn(const Call& call, Chunk& chunk, std::uint32_t count, std::uint64_t offset,
                        std::uint64_t bytes);
  // The next chunk, free again.
  absl::StatusOr<Chunk*> Take();
  absl::Status Settle(Chunk& chunk);
  absl::Status Follow(cudaStream_t stream, CudaEvent& event, cudaStream_t follower);
  absl::Status Broken(absl::Status status);

  const std::string name_;
  const int device_;
  const cudaStream_t engine_;
  Owners owners_;
  std::unique_ptr<Resources> card_;
  std::size_t next_ = 0;
  // What one stream has queued that the other one does not follow yet.
  bool kernels_ahead_ = false;
  bool copies_ahead_ = false;       // those that go directly
  std::uint64_t direct_bytes_ = 0;  // since one of `direct` was recorded
  std::size_t next_direct_ = 0;
  std::vector<CopyBlock> blocks_;
  absl::Status broken_;
};

#define PARKADE_CUDA(call, what) \
  if (absl::Status cuda_status = CudaStatus(call, what); !cuda_status.ok()) return cuda_status

absl::Status CudaCopier::Open() {
  int count = 0;
  PARKADE_CUDA(cudaGetDeviceCount(&count), "looking for cards");
  if (device_ < 0 || device_ >= count) {
    return absl::UnavailableError(absl::StrCat("no card ", device_, ": there are ", count));
  }
  const WithDevice with(device_);
  card_ = std::make_unique<Resources>();
  for (CudaStream* stream : {&card_->copies, &card_->kernels, &card_->releases}) {
    PARKADE_CUDA(cudaStreamCreateWithFlags(stream->out(), cudaStreamNonBlocking), "a stream");
  }
  std::vector<CudaEvent*> events = {&card_->engine, &card_->ordered, &card_->direct[0],
                                    &card_->direct[1]};
  for (Chunk& chunk : card_->chunks) {
    PARKADE_CUDA(cudaMalloc(chunk.packed.out(), kChunkBytes), "memory for a chunk");
    PARKADE_CUDA(cudaHostAlloc(chunk.table.out(), kMostPieces * sizeof(CopyBlock),
                               cudaHostAllocMapped | cudaHostAllocPortable),
                 "page-locked memory for a table");
    // Now: when it is needed, page-locked memory may be what the machine has run out of.
    PARKADE_CUDA(cudaHostAlloc(chunk.bounce.out(), kChunkBytes, cudaHostAllocPortable),
                 "page-locked memory for a chunk");
    events.push_back(&chunk.copied);
    events.push_back(&chunk.moved);
  }
  for (CudaEvent* event : events) {
    PARKADE_CUDA(cudaEventCreateWithFlags(event->out(), cudaEventDisableTiming), "an event");
  }
  return absl::OkStatus();
}

// From the first error on the card's state is not known.
absl::Status CudaCopier::Broken(absl::Status status) {
  if (broken_.ok()) broken_ = absl::UnavailableError(absl::StrCat(name_, ": ", status.message()));
  return broken_;
}

absl::Status CudaCopier::Follow(cudaStream_t stream, CudaEvent& event, cudaStream_t follower) {
  PARKADE_CUDA(cudaEventRecord(event.get(), stream), "an event");
  PARKADE_CUDA(cudaStreamWaitEvent(follower, event.get(), 0), "waiting for an event");
  return absl::OkStatus();
}

// Whatever the engine has queued comes first.
absl::Status CudaCopier::Begin() {
  if (absl::Status s = Follow(engine_, card_->engine, card_->kernels.get()); !s.ok()) return s;
  PARKADE_CUDA(cudaStreamWaitEvent(card_->copies.get(), card_->engine.get(), 0),
               "waiting for the engine");
  return absl::OkStatus();
}

cudaPointerAttributes AttributesOf(const void* memory) {
  cudaPointerAttributes attributes{};
  // swallow: older drivers say so of memory they don't know.
  if (!CudaStatus(cudaPointerGetAttributes(&attributes, memory), "whose memory it is").ok()) {
    attributes.type = cudaMemoryTypeUnregistered;
  }
  return attributes;
}

bool IsPinned(const void* host) {
  const cudaMemoryType type = AttributesOf(host).type;
  return type == cudaMemoryTypeHost || type == cudaMemoryTypeManaged;
}

absl::Status CudaCopier::CopyOut(absl::Span<const PlaneRun> runs, char* host) {
  if (!broken_.ok()) return broken_;
  if (absl::Status s = ExpandRuns(runs, &blocks_); !s.ok()) return s;
  if (blocks_.empty()) return absl::OkStatus();
  const WithDevice with(device_);
  absl::Status status = Begin();
  if (status.ok()) status = Move({true, IsPinned(host), host, nullptr});
  return status.ok() ? status : Broken(std::move(status));
}

absl::Status CudaCopier::CopyIn(absl::Span<const PlaneRun> runs, const char* host,
                                std::shared_ptr<const void> owner) {
  if (!broken_.ok()) return broken_;
  if (absl::Status s = ExpandRuns(runs, &blocks_); !s.ok()) return s;
  if (blocks_.empty()) return absl::OkStatus();
  const WithDevice with(device_);
  const bool pinned = IsPinned(host);
  // Before anything is queued: whatever happens below, it lives long enough.
  Owners::Held* held = pinned ? owners_.Add(std::move(owner)) : nullptr;
  const auto queue = [&]() -> absl::Status {
    if (absl::Status s = Begin(); !s.ok()) return s;
    if (absl::Status s = Move({false, pinned, nullptr, host}); !s.ok()) return s;
    if (held == nullptr) return absl::OkStatus();
    // On a stream of its own: copies do not wait for the thread that lets go.
    cudaStream_t releases = card_->releases.get();
    if (absl::Status s = Follow(card_->copies.get(), card_->ordered, releases); !s.ok()) {
      return s;
    }
    PARKADE_CUDA(cudaLaunchHostFunc(releases, LetGo, held), "letting go");
    return absl::OkStatus();
  };
  absl::Status status = queue();
  return status.ok() ? status : Broken(std::move(status));
}

// Groups that lie one behind the other in the host's memory go together.
absl::Status CudaCopier::Move(const Call& call) {
  std::vector<CopyBlock> group;
  const auto flush = [&]() -> absl::Status {
    if (group.empty()) return absl::OkStatus();
    const std::vector<CopyBlock> pieces = CutToPieces(group, kPieceBytes);
    group.clear();
    return MovePacked(call, pieces);
  };
  for (const CopyBlock& block : blocks_) {
    const bool direct = call.pinned && block.rows == 1 && block.width >= kDirectBytes;
    const bool behind =
        group.empty() || group.back().host_offset + group.back().bytes() == block.host_offset;
    if (direct || !behind) {
      if (absl::Status s = flush(); !s.ok()) return s;
    }
    if (!direct) {
      group.push_back(block);
    } else if (absl::Status s = MoveDirectly(call, block); !s.ok()) {
      return s;
    }
  }
  return flush();
}

// Kernels before it may write the same rows, and those after it, too.
absl::Status CudaCopier::MoveDirectly(const Call& call, const CopyBlock& block) {
  cudaStream_t copies = card_->copies.get();
  if (kernels_ahead_) {
    absl::Status ordered = Follow(card_->kernels.get(), card_->ordered, copies);
    if (!ordered.ok()) return ordered;
  }
  kernels_ahead_ = false;
  copies_ahead_ = true;
  if (call.out) {
    PARKADE_CUDA(cudaMemcpyAsync(call.to + block.host_offset, block.device, block.width,
                                 cudaMemcpyDeviceToHost, copies),
                 "copying out");
  } else {
    PARKADE_CUDA(cudaMemcpyAsync(block.device, call.from + block.host_offset, block.width,
                                 cudaMemcpyHostToDevice, copies),
                 "copying in");
  }
  return BoundDirect(block.width);
}

absl::Status CudaCopier::BoundDirect(std::uint64_t bytes) {
  direct_bytes_ += bytes;
  if (direct_bytes_ < kMostDirectBytes / 2) return absl::OkStatus();
  direct_bytes_ = 0;
  PARKADE_CUDA(cudaEventRecord(card_->direct[next_direct_].get(), card_->copies.get()), "an event");
  next_direct_ = 1 - next_direct_;
  // Of the half before; it has happened where there was none.
  PARKADE_CUDA(cudaEventSynchronize(card_->direct[next_direct_].get()), "copying");
  return absl::OkStatus();
}

absl::Status CudaCopier::MovePacked(const Call& call, absl::Span<const CopyBlock> pieces) {
  while (!pieces.empty()) {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    while (count < std::min(pieces.size(), kMostPieces) &&
           bytes + pieces[count].bytes() <= kChunkBytes) {
      bytes += pieces[count++].bytes();
    }
    if (absl::Status s = MoveChunk(call, pieces.subspan(0, count)); !s.ok()) return s;
    pieces.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status CudaCopier::MoveChunk(const Call& call, absl::Span<const CopyBlock> pieces) {
  const absl::StatusOr<Chunk*> chunk = Take();
  if (!chunk.ok()) return chunk.status();
  const std::uint64_t offset = pieces.front().host_offset;
  auto* table = static_cast<CopyBlock*>((*chunk)->table.get());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    table[i] = pieces[i];
    table[i].host_offset -= offset;
    bytes += pieces[i].bytes();
  }
  const auto count = static_cast<std::uint32_t>(pieces.size());
  if (copies_ahead_) {
    absl::Status ordered = Follow(card_->copies.get(), card_->ordered, card_->kernels.get());
    if (!ordered.ok()) return ordered;
  }
  copies_ahead_ = false;
  kernels_ahead_ = true;
  (*chunk)->used = true;
  return call.out ? PackOut(call, **chunk, count, offset, bytes)
                  : SpreadIn(call, **chunk, count, offset, bytes);
}

absl::Status CudaCopier::PackOut(const Call& call, Chunk& chunk, std::uint32_t count,
                                 std::uint64_t offset, std::uint64_t bytes) {
  cudaStream_t copies = card_->copies.get();
  cudaStream_t kernels = card_->kernels.get();
  auto* packed = static_cast<char*>(chunk.packed.get());
  PARKADE_CUDA(LaunchCopyBlocks(static_cast<const CopyBlock*>(chunk.table.get()), count, packed,
                                true, kernels),
               "packing rows");
  if (absl::Status s = Follow(kernels, chunk.moved, copies); !s.ok()) return s;
  char* to = call.to + offset;
  if (!call.pinned) {
    chunk.deferred_to = to;
    chunk.deferred_bytes = bytes;
    to = static_cast<char*>(chunk.bounce.get());
  }
  PARKADE_CUDA(cudaMemcpyAsync(to, packed, bytes, cudaMemcpyDeviceToHost, copies), "copying out");
  PARKADE_CUDA(cudaEventRecord(chunk.copied.get(), copies), "an event");
  return absl::OkStatus();
}

absl::Status CudaCopier::SpreadIn(const Call& call, Chunk& chunk, std::uint32_t count,
                                  std::uint64_t offset, std::uint64_t bytes) {
  cudaStream_t copies = card_->copies.get();
  cudaStream_t kernels = card_->kernels.get();
  auto* packed = static_cast<char*>(chunk.packed.get());
  const char* from = call.from + offset;
  if (!call.pinned) {
    std::memcpy(chunk.bounce.get(), from, bytes);
    from = static_cast<const char*>(chunk.bounce.get());
  }
  PARKADE_CUDA(cudaMemcpyAsync(packed, from, bytes, cudaMemcpyHostToDevice, copies), "copying in");
  if (absl::Status s = Follow(copies, chunk.copied, kernels); !s.ok()) return s;
  PARKADE_CUDA(LaunchCopyBlocks(static_cast<const CopyBlock*>(chunk.table.get()), count, packed,
                                false, kernels),
               "spreading rows");
  PARKADE_CUDA(cudaEventRecord(chunk.moved.get(), kernels), "an event");
  return absl::OkStatus();
}

absl::StatusOr<Chunk*> CudaCopier::Take() {
  Chunk& chunk = card_->chunks[next_];
  next_ = (next_ + 1) % kChunks;
  if (absl::Status s = Settle(chunk); !s.ok()) return s;
  return &chunk;
}

// Until nothing reads or writes the chunk's buffers any more.
absl::Status CudaCopier::Settle(Chunk& chunk) {
  if (!chunk.used) return absl::OkStatus();
  PARKADE_CUDA(cudaEventSynchronize(chunk.moved.get()), "moving rows");
  PARKADE_CUDA(cudaEventSynchronize(chunk.copied.get()), "copying");
  if (chunk.deferred_bytes > 0) {
    std::memcpy(chunk.deferred_to, chunk.bounce.get(), chunk.deferred_bytes);
  }
  chunk.deferred_bytes = 0;
  chunk.used = false;
  return absl::OkStatus();
}

absl::Status CudaCopier::Wait() {
  if (card_ == nullptr) return broken_;
  const WithDevice with(device_);
  const auto finish = [&]() -> absl::Status {
    for (Chunk& chunk : card_->chunks) {
      if (absl::Status s = Settle(chunk); !s.ok()) return s;
    }
    for (const CudaStream* stream : {&card_->kernels, &card_->copies, &card_->releases}) {
      PARKADE_CUDA(cudaStreamSynchronize(stream->get()), "waiting for the card");
    }
    return absl::OkStatus();
  };
  if (broken_.ok()) {
    if (absl::Status s = finish(); !s.ok()) (void)Broken(std::move(s));
  }
  if (!broken_.ok()) {
    // Not every error stops the card: what was queued before it may still be under way. On one that
    // has stopped these return at once, and nobody is called back.
    for (const CudaStream* stream : {&card_->kernels, &card_->copies, &card_->releases}) {
      if (stream->get() == nullptr) continue;
      // swallow: `broken_` says what was wrong first.
      (void)CudaStatus(cudaStreamSynchronize(stream->get()), "waiting for the card");
    }
    owners_.DropAll();
  }
  return broken_;
}

#undef PARKADE_CUDA

}  // namespace

absl::StatusOr<std::unique_ptr<StageCopier>> NewCudaCopier(int device, void* stream) {
  auto copier = std::make_unique<CudaCopier>(device, static_cast<cudaStream_t>(stream));
  if (absl::Status s = copier->Open(); !s.ok()) return s;
  return copier;
}

int CudaDeviceOf(const void* memory) {
  const cudaPointerAttributes attributes = AttributesOf(memory);
  const bool there =
      attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return there ? attributes.device : -1;
}

}  // namespace parkade
