// What a value looks like on its way: as it is, or packed where the link is slower than the codec.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parkade/image.h"
#include "parkade/options.h"

namespace parkade::remote {

// Thread safe; no lock is held while something is packed.
class Packing {
 public:
  explicit Packing(CodecChoice choice) : choice_(choice) {}

  // As Compress of the choice; kAuto packs with zstd when that takes less time than the bytes it
  // saves would take on the link, as both were measured.
  Codec Pack(absl::Span<const char> raw, std::string* stored);
  // A value of so many bytes was on its way for so long. Fewer than 64 KiB measure the overhead.
  void NoteSent(std::size_t bytes, absl::Duration took);

 private:
  // Of the last values the fastest counts: a machine or a store that was busy says nothing of the
  // link. 0: nothing was measured.
  double LinkSecondsPerByte() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether saving this part of the bytes is worth the codec's time.
  bool Pays(double saved_share) const ABSL_LOCKS_EXCLUDED(mu_);

  static constexpr std::size_t kKept = 8;
  const CodecChoice choice_;
  mutable absl::Mutex mu_;
  std::array<double, kKept> sent_seconds_per_byte_ ABSL_GUARDED_BY(mu_){};
  std::size_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  // Until it was measured: what zstd does on a slow core.
  double codec_seconds_per_byte_ ABSL_GUARDED_BY(mu_) = 1 / 300e6;
};

}  // namespace parkade::remote
