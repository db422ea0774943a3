// Reading: the catalogue, and extents straight into the caller's buffers.
#include <optional>

#include "absl/strings/str_cat.h"
#include "tiers/disk/tier_impl.h"

namespace parkade::disk {
namespace {

// NotFound in place of DataLoss when the park was removed (or its key stored again, so that its
// row no longer says `ref`) while it was being read: that is a miss, not damage.
absl::Status RemovedOr(const CatalogueDb& db, const absl::Status& status, const ParkKey& key,
                       const std::optional<SegmentRef>& ref) {
  if (!absl::IsDataLoss(status)) return status;
  const absl::StatusOr<ManifestRow> row = ReadManifest(db, key);
  if (absl::IsNotFound(row.status())) return row.status();
  if (row.ok() && ref.has_value() && row->ref != *ref) {
    return absl::NotFoundError("the park was removed, and its key stored again");
  }
  return status;
}

}  // namespace

absl::Status DiskTier::Enumerate(const std::function<void(const ParkSummary&)>& visit) {
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  absl::Status damaged;
  const absl::Status scanned = (*db)->Scan(Family::kManifest, "", "", [&](auto key, auto value) {
    const absl::StatusOr<ParkKey> park = ParseManifestKey(key);
    const absl::StatusOr<RefRow> row = UnwrapRef(value);
    damaged.Update(park.status());
    damaged.Update(row.status());
    if (!park.ok() || !row.ok()) return true;
    const absl::StatusOr<ParkSummary> summary = DecodeManifest(*park, row->inner);
    damaged.Update(summary.status());
    if (summary.ok()) visit(*summary);
    return true;
  });
  return scanned.ok() ? damaged : scanned;
}

absl::Status DiskTier::EnumerateIdentities(
    const std::function<void(const Digest128&, const StoredIdentity&)>& visit) {
  std::vector<std::pair<Digest128, std::string>> values;
  {
    absl::MutexLock lock(&mutex_);
    values.assign(identities_.begin(), identities_.end());
  }
  for (const auto& [digest, value] : values) {
    const absl::StatusOr<StoredIdentity> identity = DecodeIdentity(value);
    if (!identity.ok()) return identity.status();
    visit(digest, *identity);
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedPlace> DiskTier::FindPlace(const ParkKey& key) {
  SharedPlace place = places_.Find(key);
  if (place != nullptr) return place;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  const std::uint64_t epoch = places_.epoch();
  absl::StatusOr<SharedPlace> loaded = LoadPlace(**db, reader_, key);
  if (!loaded.ok()) return disk::RemovedOr(**db, loaded.status(), key, std::nullopt);
  places_.Put(key, *loaded, epoch);
  return loaded;
}

absl::Status DiskTier::RemovedOr(const absl::Status& status, const ParkKey& key,
                                 const SegmentRef& ref) {
  if (!absl::IsDataLoss(status)) return status;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  return disk::RemovedOr(**db, status, key, ref);
}

absl::StatusOr<std::vector<Token>> DiskTier::ReadTokens(const ParkKey& key) {
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  absl::StatusOr<std::string> value = (*db)->Get(Family::kTokens, ManifestKey(key));
  if (value.ok()) {
    absl::StatusOr<std::vector<Token>> tokens = DecodeTokens(*value);
    if (tokens.ok()) return tokens;
  } else if (absl::IsUnavailable(value.status())) {
    return value.status();
  }
  // The catalogue has lost them; the segment has a copy.
  absl::StatusOr<ManifestRow> manifest = ReadManifest(**db, key);
  if (!manifest.ok()) return manifest.status();
  absl::StatusOr<std::vector<std::string>> copies =
      ReadCopiedRows(reader_, manifest->ref.segment, key, Family::kTokens);
  if (!copies.ok()) return disk::RemovedOr(**db, copies.status(), key, manifest->ref);
  if (copies->size() != 1) return absl::DataLossError("the tokens of a park are lost");
  return DecodeTokens(copies->front());
}

absl::StatusOr<std::vector<ExtentInfo>> DiskTier::ReadExtents(const ParkKey& key) {
  absl::StatusOr<SharedPlace> place = FindPlace(key);
  if (!place.ok()) return place.status();
  const SegmentRef& ref = (*place)->ref;
  const absl::StatusOr<SegmentFile> file = directory_->Stat(ref.segment);
  if (absl::IsNotFound(file.status())) {
    return RemovedOr(absl::DataLossError(file.status().message()), key, ref);
  }
  if (!file.ok()) return file.status();
  if (file->size_bytes != ref.size_bytes) {
    return absl::DataLossError(absl::StrCat(SegmentPath(ref.segment), ": is ", file->size_bytes,
                                            " bytes, not ", ref.size_bytes));
  }
  std::vector<ExtentInfo> extents;
  extents.reserve((*place)->extents.size());
  for (const StoredExtent& extent : (*place)->extents) extents.push_back(extent.info);
  return extents;
}

absl::StatusOr<ExtentBytes> DiskTier::ReadExtent(
    const ParkKey& key, std::uint32_t extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  absl::StatusOr<SharedPlace> place = FindPlace(key);
  if (!place.ok()) return place.status();
  if (extent >= (*place)->extents.size()) {
    return absl::NotFoundError("the park has no such extent");
  }
  const StoredExtent& stored = (*place)->extents[extent];
  absl::StatusOr<ExtentBytes> read =
      reader_.ReadExtent((*place)->ref.segment, key, stored, allocate);
  if (!read.ok()) return RemovedOr(read.status(), key, (*place)->ref);
  return read;
}

void DiskTier::WillRead(absl::Span<const ParkKey> keys) { readahead_->Add(keys); }

}  // namespace parkade::disk
