#include "tiers/disk/park_places.h"

#include <utility>

namespace parkade::disk {
namespace {

absl::StatusOr<std::vector<std::string>> ReadImageRows(const CatalogueDb& db, const ParkKey& key,
                                                       std::size_t stages) {
  std::vector<std::string> values;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    absl::StatusOr<std::string> value =
        db.Get(Family::kImage, ImageKey(key, static_cast<std::uint16_t>(stage)));
    if (!value.ok()) return value.status();
    values.push_back(std::move(value).value());
  }
  return values;
}

absl::StatusOr<SharedPlace> MakePlace(const SegmentRef& ref,
                                      const absl::StatusOr<std::vector<std::string>>& values) {
  if (!values.ok()) return values.status();
  absl::StatusOr<std::vector<StoredExtent>> extents = JoinImageRows(ref.segment, *values);
  if (!extents.ok()) return extents.status();
  for (const StoredExtent& extent : *extents) {
    if (extent.offset < kExtentHeaderBytes || extent.offset > ref.size_bytes ||
        extent.stored_bytes > ref.size_bytes - extent.offset) {
      return absl::DataLossError(SegmentPath(ref.segment) + ": an extent lies outside of it");
    }
  }
  return std::make_shared<const ParkPlace>(ParkPlace{ref, std::move(extents).value()});
}

}  // namespace

absl::StatusOr<ManifestRow> ReadManifest(const CatalogueDb& db, const ParkKey& key) {
  absl::StatusOr<std::string> value = db.Get(Family::kManifest, ManifestKey(key));
  if (!value.ok()) return value.status();
  absl::StatusOr<RefRow> row = UnwrapRef(*value);
  if (!row.ok()) return row.status();
  absl::StatusOr<ParkSummary> summary = DecodeManifest(key, row->inner);
  if (!summary.ok()) return summary.status();
  return ManifestRow{row->ref, std::move(summary).value()};
}

absl::StatusOr<std::vector<std::string>> ReadCopiedRows(const SegmentReader& reader,
                                                        std::uint64_t segment, const ParkKey& key,
                                                        Family family) {
  absl::StatusOr<SegmentHead> head = reader.ReadHead(segment);
  if (absl::IsNotFound(head.status())) return absl::DataLossError(head.status().message());
  if (!head.ok()) return head.status();
  std::vector<std::string> values;
  for (CatalogueRow& row : head->rows) {
    if (row.family != family) continue;
    if (family == Family::kImage) {
      const auto image = ParseImageKey(row.key);
      if (!image.ok() || image->first != key) continue;
    } else if (row.key != ManifestKey(key)) {
      continue;
    }
    values.push_back(std::move(row.value));
  }
  return values;
}

absl::StatusOr<SharedPlace> LoadPlace(const CatalogueDb& db, const SegmentReader& reader,
                                      const ParkKey& key) {
  absl::StatusOr<ManifestRow> manifest = ReadManifest(db, key);
  if (!manifest.ok()) return manifest.status();
  absl::StatusOr<SharedPlace> place =
      MakePlace(manifest->ref, ReadImageRows(db, key, manifest->summary.stages.stages.size()));
  if (place.ok() || absl::IsUnavailable(place.status())) return place;
  return MakePlace(manifest->ref,
                   ReadCopiedRows(reader, manifest->ref.segment, key, Family::kImage));
}

SharedPlace ParkPlaces::Find(const ParkKey& key) {
  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, it->second.position);
  return it->second.place;
}

std::uint64_t ParkPlaces::epoch() const {
  absl::MutexLock lock(&mutex_);
  return epoch_;
}

void ParkPlaces::Put(const ParkKey& key, SharedPlace place, std::uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  if (epoch != epoch_) return;
  EraseLocked(key);
  extents_ += place->extents.size() + 1;
  recent_.push_front(key);
  entries_[key] = {std::move(place), recent_.begin()};
  while (extents_ > kMostExtents && recent_.size() > 1) {
    const ParkKey oldest = recent_.back();
    EraseLocked(oldest);
  }
}

void ParkPlaces::Erase(const ParkKey& key) {
  absl::MutexLock lock(&mutex_);
  ++epoch_;
  EraseLocked(key);
}

void ParkPlaces::Clear() {
  absl::MutexLock lock(&mutex_);
  ++epoch_;
  entries_.clear();
  recent_.clear();
  extents_ = 0;
}

void ParkPlaces::EraseLocked(const ParkKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  extents_ -= it->second.place->extents.size() + 1;
  recent_.erase(it->second.position);
  entries_.erase(it);
}

}  // namespace parkade::disk
