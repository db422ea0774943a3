#include "src/format/park_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

using Family = CatalogueRow::Family;

absl::Status Damaged(absl::string_view what) { return absl::DataLossError(what); }

}  // namespace

absl::StatusOr<std::uint64_t> CheckedPayloadBytes(const ParkRecord& record,
                                                  absl::Span<const ExtentBytes> payload) {
  const ParkSummary& summary = record.summary;
  if (record.tokens.size() != summary.token_count) {
    return absl::InvalidArgumentError("tokens do not match the token count");
  }
  if (payload.size() != record.extents.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(payload.size(), " payloads for ", record.extents.size(), " extents"));
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const ExtentInfo& extent = record.extents[i];
    // The bytes may be a part of their buffer.
    if (payload[i] == nullptr || payload[i]->size() < extent.raw_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", i, " has too few bytes"));
    }
    if (extent.stage >= summary.stages.stages.size()) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", i, " has no stage"));
    }
    total += extent.raw_bytes;
  }
  if (total > kParkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a park of ", total, " bytes is more than a segment holds"));
  }
  return total;
}

std::vector<CatalogueRow> ParkRows(const ParkRecord& record, std::uint64_t segment,
                                   const std::vector<StoredExtent>& extents) {
  const ParkKey& key = record.summary.key;
  const std::size_t stages = record.summary.stages.stages.size();
  std::vector<std::vector<StoredExtent>> by_stage(stages);
  for (const StoredExtent& extent : extents) by_stage[extent.info.stage].push_back(extent);
  std::vector<CatalogueRow> rows = {
      {Family::kManifest, ManifestKey(key), EncodeManifest(record.summary)},
      {Family::kTokens, ManifestKey(key), EncodeTokens(record.tokens)}};
  for (std::size_t stage = 0; stage < stages; ++stage) {
    rows.push_back({Family::kImage, ImageKey(key, static_cast<std::uint16_t>(stage)),
                    EncodeImage(segment, by_stage[stage])});
  }
  return rows;
}

absl::StatusOr<std::vector<StoredExtent>> JoinImages(std::uint64_t segment, const ParkKey& key,
                                                     absl::Span<const CatalogueRow> rows) {
  std::vector<StoredExtent> extents;
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    const CatalogueRow& row = rows[stage];
    if (row.family != Family::kImage ||
        row.key != ImageKey(key, static_cast<std::uint16_t>(stage))) {
      return Damaged("an image row is not where it belongs");
    }
    const absl::StatusOr<ImageRow> image = DecodeImage(row.value);
    if (!image.ok()) return image.status();
    if (image->segment != segment) return Damaged("an image row names another segment");
    for (const StoredExtent& extent : image->extents) {
      if (extent.info.stage != stage) return Damaged("an extent of another stage");
      extents.push_back(extent);
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const StoredExtent& a, const StoredExtent& b) { return a.ordinal < b.ordinal; });
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i].ordinal != i) return Damaged("the image rows of a park do not fit together");
  }
  return extents;
}

}  // namespace parkade
