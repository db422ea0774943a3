#include "src/cli/export.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/container_file.h"
#include "src/cli/conversation_path.h"
#include "src/format/checksum.h"
#include "src/format/heap_buffer.h"
#include "src/format/row_cut.h"

namespace parkade {
namespace {

// A park as it goes into the container.
struct PackedPark {
  ParkRecord record;
  std::vector<StoredExtent> extents;
  std::vector<std::string> stored;
};

class Exporter {
 public:
  Exporter(Tier& tier, const StateLayout& layout, const WorkWatch& watch)
      : tier_(tier), layout_(layout), watch_(watch) {}

  absl::StatusOr<PackedPark> Pack(const PathStep& step, std::uint64_t all_bytes) {
    absl::StatusOr<std::vector<Token>> tokens = ReadStepTokens(tier_, step);
    if (!tokens.ok()) return tokens.status();
    absl::StatusOr<std::vector<ExtentInfo>> infos = tier_.ReadExtents(step.stored.key);
    if (!infos.ok()) return infos.status();
    PackedPark park;
    park.record.summary = step.kept;
    park.record.summary.payload_bytes = 0;
    park.record.tokens = *std::move(tokens);
    std::uint64_t stored_bytes = 0;
    for (std::uint32_t i = 0; i < infos->size(); ++i) {
      if (absl::Status s = ReportWork(watch_, done_bytes_, all_bytes); !s.ok()) return s;
      if (absl::Status s = AddExtent(step, i, (*infos)[i], &park); !s.ok()) return s;
      stored_bytes += (*infos)[i].raw_bytes;
      done_bytes_ += (*infos)[i].raw_bytes;
    }
    if (stored_bytes != step.stored.payload_bytes) return Damaged(step, "lacks extents");
    return park;
  }

 private:
  static absl::Status Damaged(const PathStep& step, absl::string_view what) {
    return absl::DataLossError(absl::StrCat("park ", step.stored.key.park, " of conversation ",
                                            ToHex(step.stored.key.conversation), " ", what));
  }

  // Rows of an extent that are the conversation's own; 0: none.
  static std::uint32_t KeptRows(const ExtentInfo& info, std::uint32_t reach) {
    if (info.group == RowGroup::kState) return info.first <= reach ? info.rows : 0;
    return info.first < reach ? std::min(info.rows, reach - info.first) : 0;
  }

  absl::Status AddExtent(const PathStep& step, std::uint32_t number, const ExtentInfo& info,
                         PackedPark* park) {
    const std::vector<Stage>& stages = step.stored.stages.stages;
    // A draft's planes are no part of the identity: its extents go whole or not at all.
    const bool of_draft = info.stage < stages.size() && IsDraft(stages[info.stage]);
    if (info.stage >= stages.size() ||
        (!of_draft && SlicesOf(layout_, stages[info.stage], info).empty())) {
      return Damaged(step, "has an extent that does not fit the layout");
    }
    const std::uint32_t rows = KeptRows(info, step.reach);
    if (rows == 0 || (of_draft && rows < info.rows)) return absl::OkStatus();
    const absl::StatusOr<ExtentBytes> read =
        tier_.ReadExtent(step.stored.key, number, MakeHeapBuffer);
    if (!read.ok()) return read.status();
    ExtentBytes raw = *read;
    if (raw->size() < info.raw_bytes ||
        !(Checksum({raw->data(), info.raw_bytes}) == info.checksum)) {
      return Damaged(step, absl::StrCat("is damaged: the checksum of extent ", number, " differs"));
    }
    StoredExtent extent;
    extent.info = FirstRows(info, rows);
    if (rows < info.rows) {
      std::shared_ptr<ExtentBuffer> cut = MakeHeapBuffer(extent.info.raw_bytes);
      CopyFirstRows(layout_, stages[info.stage], info, rows, raw->data(), cut->data());
      extent.info.checksum = Checksum({cut->data(), cut->size()});
      raw = std::move(cut);
    }
    const absl::Span<const char> bytes(raw->data(), extent.info.raw_bytes);
    std::string stored;
    extent.codec = Compress(CodecChoice::kAuto, bytes, &stored);
    if (extent.codec == Codec::kRaw) stored.assign(bytes.data(), bytes.size());
    extent.stored_bytes = static_cast<std::uint32_t>(stored.size());
    park->record.summary.payload_bytes += extent.info.raw_bytes;
    park->record.extents.push_back(extent.info);
    park->extents.push_back(extent);
    park->stored.push_back(std::move(stored));
    return absl::OkStatus();
  }

  Tier& tier_;
  const StateLayout& layout_;
  const WorkWatch& watch_;
  std::uint64_t done_bytes_ = 0;
};

absl::StatusOr<StoredIdentity> FindIdentity(Tier& tier, const Digest128& digest) {
  std::optional<StoredIdentity> found;
  const absl::Status listed =
      tier.EnumerateIdentities([&](const Digest128& other, const StoredIdentity& stored) {
        if (other == digest) found = stored;
      });
  if (!listed.ok()) return listed;
  if (!found.has_value()) return absl::DataLossError("the conversation's identity is not there");
  return *std::move(found);
}

}  // namespace

absl::StatusOr<ExportReport> ExportConversation(Tier& tier, const ExportRequest& request,
                                                const WorkWatch& watch) {
  const absl::StatusOr<ConversationId> id = FindConversation(tier, request.id_or_name);
  if (!id.ok()) return id.status();
  const absl::StatusOr<ConversationPath> path = FindPath(tier, *id);
  if (!path.ok()) return path.status();
  if (path->tokens == 0) return absl::NotFoundError("the conversation has no tokens");
  const Digest128 digest = path->steps.back().stored.identity;
  const absl::StatusOr<StoredIdentity> identity = FindIdentity(tier, digest);
  if (!identity.ok()) return identity.status();
  absl::StatusOr<std::unique_ptr<ContainerWriter>> writer =
      ContainerWriter::Create(request.file, request.replace, request.key);
  if (!writer.ok()) return writer.status();
  ConversationAttributes attributes = path->attributes;
  // No server gives other names; a file that nobody can import is worth nothing.
  if (!IsContainerName(attributes.name)) attributes.name.clear();
  attributes.name_tokens =
      attributes.name.empty() ? 0 : std::min(attributes.name_tokens, path->tokens);
  absl::Status put = (*writer)->Begin({*id, digest}, *identity, attributes);
  if (!put.ok()) return put;

  ExportReport report;
  report.id = *id;
  report.name = attributes.name;
  report.tokens = path->tokens;
  Exporter exporter(tier, identity->layout, watch);
  for (const PathStep& step : path->steps) {
    if (!(step.stored.identity == digest)) {
      return absl::DataLossError("parts of the conversation are of another identity");
    }
    absl::StatusOr<PackedPark> park = exporter.Pack(step, path->stored_bytes);
    if (!park.ok()) return park.status();
    // Of an ancestor's later parks, or a session's own, nothing may be left.
    if (park->record.tokens.empty() && park->extents.empty()) continue;
    park->record.summary.key.park = report.parks++;
    report.stages = std::max(report.stages,
                             static_cast<std::uint32_t>(park->record.summary.stages.stages.size()));
    put = (*writer)->AddPark(park->record, std::move(park->extents), park->stored);
    if (!put.ok()) return put;
  }
  const absl::StatusOr<std::uint64_t> bytes = (*writer)->Commit();
  if (!bytes.ok()) return bytes.status();
  report.file_bytes = *bytes;
  return report;
}

}  // namespace parkade
