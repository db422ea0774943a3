// What the remote tier is measured against: plain connections that say just enough of Redis'
// protocol, and what a workload publishes.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/shared_tier.h"
#include "tests/bench/files.h"

namespace parkade::bench {

// As LMCache's `bench l2` has them: its pages of 2,304 KB.
inline constexpr std::uint32_t kValueBytes = 2304u << 10;
inline constexpr int kInFlight = 4;

// Memory of somebody else as an extent's.
class View : public ExtentBuffer {
 public:
  using ExtentBuffer::ExtentBuffer;
};

// Blocks. One thread.
class RawConnection {
 public:
  // To a port of this machine.
  explicit RawConnection(int port);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // False: refused, broken, or another answer than it should be.
  bool Set(const std::string& name, absl::Span<const char> value);
  // Exactly so many bytes, to memory that has room for them.
  bool Get(const std::string& name, char* to, std::size_t size);
  bool FlushAll();

 private:
  bool SendAll(std::vector<iovec> pieces);
  bool Receive(char* to, std::size_t size);
  bool ReceiveValue(char* to, std::size_t size);
  void WakeAt(std::size_t bytes);
  bool ReceiveOk();

  const int fd_;
};

// Values of kValueBytes under names of their own, kInFlight commands on their way, each value at
// the master of its slot.
class RawValues {
 public:
  // One port: a server. Three: masters in the order of test::RedisCluster::MasterOf. `data` and
  // `received` have room for kInFlight values and outlive it.
  RawValues(std::vector<int> ports, std::size_t values, TouchedMemory& data,
            TouchedMemory& received);

  // Seconds; connecting is not counted.
  absl::StatusOr<double> Sets();
  absl::StatusOr<double> Gets();
  // Takes everything away, the tier's, too.
  absl::Status Empty();

 private:
  absl::StatusOr<double> EachValue(
      const std::function<bool(RawConnection&, std::size_t, int worker)>& work);
  std::size_t MasterOf(const std::string& name) const;

  const std::vector<int> ports_;
  const std::size_t values_;
  TouchedMemory& data_;
  TouchedMemory& received_;
};

// Random conversations whose extents all hold the same bytes.
class MadeUpChats {
 public:
  // `data` has room for an extent, and outlives what is made.
  MadeUpChats(std::uint32_t row_bytes, absl::Span<const char> data);

  // A new conversation in parks of `park_tokens`. Thread safe.
  PublishRequest Make(std::uint32_t tokens, std::uint32_t park_tokens, std::uint64_t seed) const;

 private:
  std::vector<ExtentInfo> Extents(const TokenRange& tokens) const;

  StateLayout layout_;
  StageMap stages_;
  const absl::Span<const char> data_;
};

// Fills memory from a seed.
void FillRandom(TouchedMemory& memory, std::uint64_t seed);

}  // namespace parkade::bench
