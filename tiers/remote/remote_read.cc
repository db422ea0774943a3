// Tier's reading calls, for parks that were bound to rows.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "src/format/segment.h"
#include "tiers/remote/tier_impl.h"

namespace parkade::remote {
namespace {

// A value may take this many times what the measured speed says, and a little more.
constexpr double kSlack = 4;
constexpr absl::Duration kLeastTransfer = absl::Milliseconds(250);
constexpr double kSlowest = 1e6;  // bytes a second
constexpr double kNewest = 0.2;   // weight of one measurement

}  // namespace

void RemoteTier::Bind(const ParkKey& key, const FoundPark& park) {
  const ParkSummary& summary = park.record.summary;
  SetPlace(key, {park.row, summary.key.conversation, summary.first_token, summary.end_token(),
                 static_cast<std::uint32_t>(park.record.extents.size()), absl::InfinitePast(), 0});
}

absl::StatusOr<SharedRow> RemoteTier::RowFor(const ParkKey& key, Digest128* row) {
  const std::optional<Place> place = PlaceOf(key);
  if (!place.has_value()) return absl::NotFoundError("not bound to a row");
  *row = place->row;
  return RowOf(place->row, absl::Now() + options_.deadline);
}

absl::StatusOr<std::vector<Token>> RemoteTier::ReadTokens(const ParkKey& key) {
  Digest128 row;
  const absl::StatusOr<SharedRow> value = RowFor(key, &row);
  if (!value.ok()) return value.status();
  return (*value)->record.tokens;
}

// Whether each extent is there is found out by reading: to ask before would be one more round trip
// for every restore, and what falls short ends at the last boundary that is whole.
absl::StatusOr<std::vector<ExtentInfo>> RemoteTier::ReadExtents(const ParkKey& key) {
  Digest128 row;
  const absl::StatusOr<SharedRow> value = RowFor(key, &row);
  if (!value.ok()) return value.status();
  return (*value)->record.extents;
}

absl::Time RemoteTier::TransferDeadline(std::size_t bytes) const {
  absl::MutexLock lock(&mu_);
  const double seconds =
      kSlack * static_cast<double>(bytes) / std::max(bytes_per_second_, kSlowest);
  return absl::Now() + std::max(options_.deadline, kLeastTransfer) + absl::Seconds(seconds);
}

void RemoteTier::NoteSpeed(std::size_t bytes, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  if (bytes < (64u << 10) || seconds <= 0) return;
  absl::MutexLock lock(&mu_);
  bytes_per_second_ += kNewest * (static_cast<double>(bytes) / seconds - bytes_per_second_);
}

absl::StatusOr<ExtentBytes> RemoteTier::ReadExtent(
    const ParkKey& key, std::uint32_t number,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  Digest128 row;
  const absl::StatusOr<SharedRow> value = RowFor(key, &row);
  if (!value.ok()) return value.status();
  if (number >= (*value)->extents.size()) return absl::NotFoundError("no such extent");
  if (!breaker_.closed()) return absl::UnavailableError(breaker_.reason());
  const StoredExtent& extent = (*value)->extents[number];
  std::shared_ptr<ExtentBuffer> buffer;
  const bool raw = extent.codec == Codec::kRaw;
  std::string packed;
  bool fits = true;
  const absl::Time begin = absl::Now();
  const auto place = [&](std::size_t bytes) -> char* {
    fits = bytes == extent.stored_bytes;
    if (!fits) return nullptr;
    // Only now: buffers are few, and whoever waits for a store must not keep one.
    buffer = allocate(extent.info.raw_bytes);
    if (raw) return buffer->data();
    packed.resize(bytes);
    return packed.data();
  };
  const absl::Status got =
      redis_->Get(keys_.Extent(row, number), begin + options_.deadline, place,
                  [this](std::size_t bytes) { return TransferDeadline(bytes); });
  if (!fits) return absl::DataLossError("a value of the store has another size than its row says");
  if (absl::StrContains(got.message(), "WRONGTYPE")) return absl::DataLossError(got.message());
  if (!got.ok()) return Noted(got);
  NoteSpeed(extent.stored_bytes, absl::Now() - begin);
  read_bytes_.fetch_add(extent.stored_bytes, std::memory_order_relaxed);
  char* const stored = raw ? buffer->data() : packed.data();
  if ((*value)->sealer != nullptr) {
    const absl::Status opened =
        OpenExtent(*(*value)->sealer, (*value)->headers[number], (*value)->record.summary.key,
                   extent, {stored, extent.stored_bytes}, stored);
    if (!opened.ok()) return opened;
  }
  if (!raw) {
    const absl::Status unpacked =
        Decompress(extent.codec, packed, absl::MakeSpan(buffer->data(), extent.info.raw_bytes));
    if (!unpacked.ok()) return unpacked;
  }
  return ExtentBytes(buffer);
}

absl::Status RemoteTier::Remove(absl::Span<const ParkKey> keys) {
  for (const ParkKey& key : keys) ErasePlace(key);
  return absl::OkStatus();
}

}  // namespace parkade::remote
