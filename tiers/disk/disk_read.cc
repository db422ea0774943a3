// Reading: the catalogue, and extents straight into the caller's buffers.
#include "absl/strings/str_cat.h"
#include "tiers/disk/tier_impl.h"

namespace parkade::disk {

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
  if (!copies.ok()) return copies.status();
  if (copies->size() != 1) return absl::DataLossError("the tokens of a park are lost");
  return DecodeTokens(copies->front());
}

absl::StatusOr<std::vector<ExtentInfo>> DiskTier::ReadExtents(const ParkKey& key) {
  SharedPlace place = places_.Find(key);
  if (place == nullptr) {
    absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
    if (!db.ok()) return db.status();
    absl::StatusOr<SharedPlace> loaded = LoadPlace(**db, reader_, key);
    if (!loaded.ok()) return loaded.status();
    place = *loaded;
    places_.Put(key, place);
  }
  const absl::StatusOr<SegmentFile> file = directory_->Stat(place->ref.segment);
  if (absl::IsNotFound(file.status())) return absl::DataLossError(file.status().message());
  if (!file.ok()) return file.status();
  if (file->size_bytes != place->ref.size_bytes) {
    return absl::DataLossError(absl::StrCat(SegmentPath(place->ref.segment), ": is ",
                                            file->size_bytes, " bytes, not ",
                                            place->ref.size_bytes));
  }
  std::vector<ExtentInfo> extents;
  extents.reserve(place->extents.size());
  for (const StoredExtent& extent : place->extents) extents.push_back(extent.info);
  return extents;
}

absl::StatusOr<ExtentBytes> DiskTier::ReadExtent(
    const ParkKey& key, std::uint32_t extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  SharedPlace place = places_.Find(key);
  if (place == nullptr) {
    absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
    if (!db.ok()) return db.status();
    absl::StatusOr<SharedPlace> loaded = LoadPlace(**db, reader_, key);
    if (!loaded.ok()) return loaded.status();
    place = *loaded;
    places_.Put(key, place);
  }
  if (extent >= place->extents.size()) return absl::NotFoundError("the park has no such extent");
  const StoredExtent& stored = place->extents[extent];
  std::shared_ptr<ExtentBuffer> buffer = allocate(stored.info.raw_bytes);
  if (buffer->size() < stored.info.raw_bytes) {
    return absl::InvalidArgumentError("the buffer is smaller than what was asked for");
  }
  const absl::Status read = reader_.ReadExtent(
      place->ref.segment, stored, absl::MakeSpan(buffer->data(), stored.info.raw_bytes));
  if (!read.ok()) return read;
  return ExtentBytes(std::move(buffer));
}

void DiskTier::WillRead(absl::Span<const ParkKey> keys) { readahead_->Add(keys); }

}  // namespace parkade::disk
