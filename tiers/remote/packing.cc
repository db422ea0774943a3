#include "tiers/remote/packing.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "src/format/catalogue.h"

namespace parkade::remote {
namespace {

constexpr std::size_t kLeastBytes = 64u << 10;
constexpr double kLeastShare = 0.05;
constexpr double kNewest = 0.2;  // weight of one measurement

}  // namespace

Codec Packing::Pack(absl::Span<const char> raw, std::string* stored) {
  const bool may = choice_ == CodecChoice::kAuto && raw.size() >= kLeastBytes;
  // Even if nothing were left of them it would not pay: then nothing is tried.
  if (!may || !Pays(1) || !Pays(ZstdSavedShare(raw))) return Compress(choice_, raw, stored);
  const absl::Time begin = absl::Now();
  const Codec codec = Compress(CodecChoice::kZstd, raw, stored);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  absl::MutexLock lock(&mu_);
  codec_seconds_per_byte_ +=
      kNewest * (seconds / static_cast<double>(raw.size()) - codec_seconds_per_byte_);
  return codec;
}

void Packing::NoteSent(std::size_t bytes, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  if (bytes < kLeastBytes || seconds <= 0) return;
  absl::MutexLock lock(&mu_);
  sent_seconds_per_byte_[sent_++ % kKept] = seconds / static_cast<double>(bytes);
}

double Packing::LinkSecondsPerByte() const {
  const std::size_t count = std::min(sent_, kKept);
  if (count == 0) return 0;
  return *std::min_element(sent_seconds_per_byte_.begin(), sent_seconds_per_byte_.begin() + count);
}

bool Packing::Pays(double saved_share) const {
  if (saved_share < kLeastShare) return false;
  absl::MutexLock lock(&mu_);
  return saved_share * LinkSecondsPerByte() > codec_seconds_per_byte_;
}

}  // namespace parkade::remote
