#include "absl/strings/str_cat.h"
#include "src/format/catalogue.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

constexpr std::size_t kConversationBytes = 16;
constexpr std::size_t kManifestKeyBytes = 20;
constexpr std::size_t kImageKeyBytes = 22;

// Highest byte first, so that RocksDB's byte order is the order of the numbers.
void AppendBig(std::uint32_t value, int bytes, ByteWriter* writer) {
  for (int i = bytes - 1; i >= 0; --i) writer->U8(value >> (8 * i) & 255);
}

std::uint32_t ReadBig(int bytes, ByteReader* reader) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | reader->U8();
  return value;
}

absl::Status WrongSize(absl::string_view what, std::size_t bytes, std::size_t wanted_bytes) {
  return absl::DataLossError(absl::StrCat(what, " key: ", bytes, " bytes, not ", wanted_bytes));
}

}  // namespace

std::string ManifestKey(const ParkKey& key) {
  ByteWriter writer;
  writer.Digest(key.conversation);
  AppendBig(key.park, 4, &writer);
  return writer.Take();
}

std::string ImageKey(const ParkKey& key, std::uint16_t stage) {
  ByteWriter writer;
  writer.Digest(key.conversation);
  AppendBig(stage, 2, &writer);
  AppendBig(key.park, 4, &writer);
  return writer.Take();
}

std::string ConversationKey(const ConversationId& conversation) {
  ByteWriter writer;
  writer.Digest(conversation);
  return writer.Take();
}

absl::StatusOr<ParkKey> ParseManifestKey(std::string_view key) {
  if (key.size() != kManifestKeyBytes) return WrongSize("manifest", key.size(), kManifestKeyBytes);
  ByteReader reader(key);
  ParkKey parsed;
  parsed.conversation = reader.Digest();
  parsed.park = ReadBig(4, &reader);
  return parsed;
}

absl::StatusOr<std::pair<ParkKey, std::uint16_t>> ParseImageKey(std::string_view key) {
  if (key.size() != kImageKeyBytes) return WrongSize("image", key.size(), kImageKeyBytes);
  ByteReader reader(key);
  std::pair<ParkKey, std::uint16_t> parsed;
  parsed.first.conversation = reader.Digest();
  parsed.second = static_cast<std::uint16_t>(ReadBig(2, &reader));
  parsed.first.park = ReadBig(4, &reader);
  return parsed;
}

absl::StatusOr<ConversationId> ParseConversationKey(std::string_view key) {
  if (key.size() != kConversationBytes) {
    return WrongSize("conversation", key.size(), kConversationBytes);
  }
  return ByteReader(key).Digest();
}

}  // namespace parkade
