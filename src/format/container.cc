#include "src/format/container.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/format/park_rows.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

using Family = CatalogueRow::Family;

constexpr std::string_view kHeaderMagic = "PARKCONV";
constexpr std::string_view kTrailerMagic = "PARKCEND";
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kMostNameBytes = 255;

absl::Status Damaged(absl::string_view what) { return absl::DataLossError(what); }

// Magic and checksum; the rest is the caller's.
absl::StatusOr<ByteReader> OpenFrame(std::string_view magic, std::string_view bytes,
                                     absl::string_view what) {
  if (bytes.size() != kContainerHeaderBytes || bytes.substr(0, magic.size()) != magic) {
    return Damaged(absl::StrCat("no ", what, " of a container"));
  }
  const std::string_view covered = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (ByteReader(bytes.substr(covered.size())).U64() != Checksum64(covered)) {
    return Damaged(absl::StrCat("the checksum of the ", what, " differs"));
  }
  return ByteReader(covered.substr(magic.size()));
}

std::string Seal(ByteWriter writer) {
  writer.U64(Checksum64(writer.bytes()));
  return writer.Take();
}

std::uint64_t AlignUp(std::uint64_t value) {
  return (value + kExtentAlignment - 1) / kExtentAlignment * kExtentAlignment;
}

// Sets offsets behind a head of that size; returns the segment's end.
std::uint64_t PlaceExtents(std::uint64_t head_bytes, std::vector<StoredExtent>* extents) {
  std::uint64_t position = head_bytes;
  for (StoredExtent& extent : *extents) {
    extent.offset = AlignUp(position) + kExtentHeaderBytes;
    position = extent.offset + extent.stored_bytes;
  }
  return position;
}

}  // namespace

bool IsContainerName(std::string_view name) {
  return name.size() <= kMostNameBytes && std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

std::string EncodeContainerHeader(const ContainerHeader& header, bool sealed) {
  ByteWriter writer;
  writer.Raw(kHeaderMagic);
  writer.U32(sealed ? kSealedVersion : kFormatVersion);
  writer.U32(0);
  writer.Digest(header.conversation);
  writer.Digest(header.identity);
  writer.U64(0);
  return Seal(std::move(writer));
}

absl::StatusOr<ContainerHeader> DecodeContainerHeader(std::string_view bytes, bool* sealed) {
  absl::StatusOr<ByteReader> reader = OpenFrame(kHeaderMagic, bytes, "header");
  if (!reader.ok()) return reader.status();
  const std::uint32_t version = reader->U32();
  if (version == 0) return Damaged("version 0");
  if (version > kSealedVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "written by a newer program: version ", version, ", this one knows ", kSealedVersion));
  }
  if (sealed != nullptr) *sealed = version == kSealedVersion;
  if (reader->U32() != 0) return Damaged("reserved bytes of the header are set");
  ContainerHeader header;
  header.conversation = reader->Digest();
  header.identity = reader->Digest();
  if (reader->U64() != 0) return Damaged("reserved bytes of the header are set");
  if (header.conversation.IsZero()) return Damaged("the conversation's id is zero");
  return header;
}

std::string EncodeContainerTrailer(const ContainerTrailer& trailer) {
  ByteWriter writer;
  writer.Raw(kTrailerMagic);
  writer.U32(trailer.parks);
  writer.U32(trailer.tokens);
  writer.U64(trailer.file_bytes);
  writer.Digest(trailer.checksum);
  writer.U64(0);
  writer.U64(0);
  return Seal(std::move(writer));
}

absl::StatusOr<ContainerTrailer> DecodeContainerTrailer(std::string_view bytes,
                                                        std::uint64_t file_bytes) {
  absl::StatusOr<ByteReader> reader = OpenFrame(kTrailerMagic, bytes, "trailer");
  if (!reader.ok()) return reader.status();
  ContainerTrailer trailer;
  trailer.parks = reader->U32();
  trailer.tokens = reader->U32();
  trailer.file_bytes = reader->U64();
  trailer.checksum = reader->Digest();
  if (reader->U64() != 0 || reader->U64() != 0) {
    return Damaged("reserved bytes of the trailer are set");
  }
  if (trailer.file_bytes != file_bytes) {
    return Damaged(absl::StrCat("the file has ", file_bytes, " bytes, it was written with ",
                                trailer.file_bytes));
  }
  if (trailer.parks == 0 || trailer.tokens == 0) return Damaged("an empty conversation");
  return trailer;
}

std::string EncodeContainerOpening(const ContainerHeader& header, const StoredIdentity& identity,
                                   const ConversationAttributes& attributes,
                                   const SharedSealKey& key) {
  return EncodeSegmentHead(
      0,
      {{Family::kIdentity, ConversationKey(header.identity), EncodeIdentity(identity)},
       {Family::kName, ConversationKey(header.conversation), EncodeAttributes(attributes)}},
      0, NewSegmentSealer(key).get());
}

absl::StatusOr<ContainerPark> LayOutContainerPark(const ParkRecord& record,
                                                  std::vector<StoredExtent> extents,
                                                  const SharedSealKey& key) {
  ParkRecord kept = record;
  std::fill(kept.summary.page_hashes.begin(), kept.summary.page_hashes.end(), 0);
  const std::uint64_t segment = std::uint64_t{kept.summary.key.park} + 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i].ordinal = static_cast<std::uint32_t>(i);
    if (extents[i].info.stage >= kept.summary.stages.stages.size()) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", i, " has no stage"));
    }
  }
  // The rows' size does not depend on the offsets in them.
  const std::uint64_t head_bytes =
      SegmentHeadBytes(ParkRows(kept, segment, extents), key != nullptr);
  const std::uint64_t end = PlaceExtents(head_bytes, &extents);
  const std::vector<CatalogueRow> rows = ParkRows(kept, segment, extents);
  ContainerPark park;
  park.sealer = NewSegmentSealer(key);
  park.head = EncodeSegmentHead(segment, rows, end - head_bytes, park.sealer.get());
  park.extents = std::move(extents);
  // A decoder accepts less than an encoder takes.
  std::uint64_t needed = 0;
  absl::Status readable = DecodeSegmentHead(park.head, &needed, key.get()).status();
  readable.Update(DecodeManifest(kept.summary.key, rows[0].value).status());
  for (std::size_t i = 2; i < rows.size(); ++i)
    readable.Update(DecodeImage(rows[i].value).status());
  if (readable.ok()) return park;
  return absl::InvalidArgumentError(absl::StrCat("can't be put down: ", readable.message()));
}

absl::Status ContainerReading::Open(const SegmentHead& head) {
  if (head.segment != 0 || head.payload_bytes != 0 || head.rows.size() != 2 ||
      head.rows[0].family != Family::kIdentity ||
      head.rows[0].key != ConversationKey(header_.identity) ||
      head.rows[1].family != Family::kName ||
      head.rows[1].key != ConversationKey(header_.conversation)) {
    return Damaged("the first segment is not identity and name");
  }
  absl::StatusOr<StoredIdentity> identity = DecodeIdentity(head.rows[0].value);
  if (!identity.ok()) return identity.status();
  identity_ = *std::move(identity);
  if (!(identity_.identity.digest() == header_.identity)) {
    return Damaged("the identity is not the one that the header names");
  }
  absl::StatusOr<ConversationAttributes> attributes =
      DecodeAttributes(header_.conversation, head.rows[1].value);
  if (!attributes.ok()) return attributes.status();
  attributes_ = *std::move(attributes);
  const std::string& name = attributes_.name;
  if (!IsContainerName(name)) return Damaged("the name can't be one");
  if (attributes_.name_tokens > (name.empty() ? 0 : trailer_.tokens)) {
    return Damaged("the name stands for more tokens than there are");
  }
  return absl::OkStatus();
}

absl::Status ContainerReading::CheckSummary(const ParkSummary& summary) const {
  if (!(summary.identity == header_.identity)) return Damaged("a park of another identity");
  if (!summary.parent.IsZero() || summary.parent_tokens != 0 || summary.generation != 0) {
    return Damaged("a park of a fork");
  }
  if (summary.first_token > tokens_ ||
      (summary.token_count > 0 && summary.first_token != tokens_)) {
    return Damaged("a park does not go on where the one before it ends");
  }
  if (summary.end_token() > trailer_.tokens) return Damaged("more tokens than the trailer says");
  if (std::any_of(summary.page_hashes.begin(), summary.page_hashes.end(),
                  [](std::uint64_t hash) { return hash != 0; })) {
    return Damaged("page hashes are set");
  }
  if (!summary.window_rows.empty() && summary.window_rows.back().end > trailer_.tokens) {
    return Damaged("window rows after the end");
  }
  if (!summary.checkpoints.empty() && summary.checkpoints.back() > trailer_.tokens) {
    return Damaged("a checkpoint after the end");
  }
  return absl::OkStatus();
}

absl::Status ContainerReading::CheckExtents(const Park& park, const SegmentHead& head) const {
  std::uint64_t raw_bytes = 0;
  std::vector<StoredExtent> placed = park.extents;
  const std::uint64_t end = PlaceExtents(head.head_bytes, &placed);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const ExtentInfo& info = park.extents[i].info;
    const Stage& stage = park.record.summary.stages.stages[info.stage];
    // A draft's planes are no part of the identity.
    if (!IsDraft(stage) && SlicesOf(identity_.layout, stage, info).empty()) {
      return Damaged("an extent does not fit the layout");
    }
    const std::uint64_t reach =
        info.group == RowGroup::kState ? info.first : std::uint64_t{info.first} + info.rows;
    if (reach > trailer_.tokens) return Damaged("an extent after the end");
    if (placed[i].offset != park.extents[i].offset) return Damaged("an extent has another place");
    raw_bytes += info.raw_bytes;
  }
  if (end - head.head_bytes != head.payload_bytes) return Damaged("the payload has another size");
  if (raw_bytes != park.record.summary.payload_bytes) return Damaged("a park lacks extents");
  if (raw_bytes > kParkBytes) return Damaged("a park is too large");
  return absl::OkStatus();
}

absl::StatusOr<ContainerReading::Park> ContainerReading::Next(const SegmentHead& head) {
  const ParkKey key{header_.conversation, parks_};
  if (parks_ >= trailer_.parks || head.segment != std::uint64_t{parks_} + 1 ||
      head.rows.size() < 2 || head.rows[0].family != Family::kManifest ||
      head.rows[1].family != Family::kTokens || head.rows[0].key != ManifestKey(key) ||
      head.rows[1].key != ManifestKey(key)) {
    return Damaged("a segment is not the park that belongs here");
  }
  absl::StatusOr<ParkSummary> summary = DecodeManifest(key, head.rows[0].value);
  if (!summary.ok()) return summary.status();
  if (absl::Status s = CheckSummary(*summary); !s.ok()) return s;
  if (head.rows.size() != 2 + summary->stages.stages.size()) {
    return Damaged("image rows and stages disagree");
  }
  absl::StatusOr<std::vector<Token>> tokens = DecodeTokens(head.rows[1].value);
  if (!tokens.ok()) return tokens.status();
  if (tokens->size() != summary->token_count) return Damaged("wrong number of tokens");
  absl::StatusOr<std::vector<StoredExtent>> extents =
      JoinImages(head.segment, key, absl::MakeConstSpan(head.rows).subspan(2));
  if (!extents.ok()) return extents.status();
  Park park;
  park.record.summary = *std::move(summary);
  park.record.tokens = *std::move(tokens);
  park.extents = *std::move(extents);
  if (absl::Status s = CheckExtents(park, head); !s.ok()) return s;
  for (const StoredExtent& extent : park.extents) park.record.extents.push_back(extent.info);
  ++parks_;
  tokens_ = std::max(tokens_, park.record.summary.end_token());
  return park;
}

absl::Status ContainerReading::Close() const {
  if (parks_ != trailer_.parks) return Damaged("parks are missing");
  if (tokens_ != trailer_.tokens) return Damaged("tokens are missing");
  return absl::OkStatus();
}

}  // namespace parkade
