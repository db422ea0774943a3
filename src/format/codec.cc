#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "src/format/catalogue.h"

namespace parkade {
namespace {

constexpr int kZstdLevel = 1;
// A sample is taken in pieces, because planes of one extent differ in how they compress.
constexpr std::size_t kSamplePieces = 4;
constexpr std::size_t kSamplePieceBytes = 16u << 10;
static_assert(kSamplePieces * kSamplePieceBytes <= 64u << 10);

bool IsWorthIt(std::size_t raw_bytes, std::size_t stored_bytes) {
  return stored_bytes * 100 <= raw_bytes * 95;
}

// Compressed size with LZ4; 0: the library could not.
std::size_t CompressLz4(absl::Span<const char> raw, std::string* stored) {
  if (raw.size() > LZ4_MAX_INPUT_SIZE) return 0;
  stored->resize(LZ4_compressBound(static_cast<int>(raw.size())));
  return static_cast<std::size_t>(LZ4_compress_default(
      raw.data(), stored->data(), static_cast<int>(raw.size()), static_cast<int>(stored->size())));
}

std::size_t CompressZstd(absl::Span<const char> raw, std::string* stored) {
  stored->resize(ZSTD_compressBound(raw.size()));
  const std::size_t size =
      ZSTD_compress(stored->data(), stored->size(), raw.data(), raw.size(), kZstdLevel);
  return ZSTD_isError(size) ? 0 : size;
}

bool SampleShrinks(absl::Span<const char> raw) {
  const std::size_t piece_bytes = std::min(raw.size(), kSamplePieceBytes);
  const std::size_t pieces = std::min(kSamplePieces, raw.size() / piece_bytes);
  std::size_t compressed_bytes = 0;
  std::string scratch;
  for (std::size_t i = 0; i < pieces; ++i) {
    // From the first bytes to the last ones, evenly.
    const std::size_t begin = pieces == 1 ? 0 : (raw.size() - piece_bytes) / (pieces - 1) * i;
    const std::size_t size = CompressLz4(raw.subspan(begin, piece_bytes), &scratch);
    if (size == 0) return false;
    compressed_bytes += size;
  }
  return IsWorthIt(pieces * piece_bytes, compressed_bytes);
}

Codec KeepRaw(std::string* stored) {
  stored->clear();
  return Codec::kRaw;
}

}  // namespace

Codec Compress(CodecChoice choice, absl::Span<const char> raw, std::string* stored) {
  if (raw.empty() || choice == CodecChoice::kNone) return KeepRaw(stored);
  if (choice == CodecChoice::kAuto && !SampleShrinks(raw)) return KeepRaw(stored);
  const bool zstd = choice == CodecChoice::kZstd;
  const std::size_t size = zstd ? CompressZstd(raw, stored) : CompressLz4(raw, stored);
  // Stored bytes of a codec are always fewer than raw ones; readers rely on it.
  if (size == 0 || size >= raw.size()) return KeepRaw(stored);
  if (choice == CodecChoice::kAuto && !IsWorthIt(raw.size(), size)) return KeepRaw(stored);
  stored->resize(size);
  return zstd ? Codec::kZstd : Codec::kLz4;
}

absl::Status Decompress(Codec codec, std::string_view stored, absl::Span<char> raw) {
  switch (codec) {
    case Codec::kRaw:
      if (stored.size() != raw.size()) return absl::DataLossError("extent: raw size differs");
      if (!raw.empty()) std::memcpy(raw.data(), stored.data(), raw.size());
      return absl::OkStatus();
    case Codec::kLz4: {
      constexpr std::size_t kMostBytes = std::numeric_limits<int>::max();
      if (raw.empty() || raw.size() > kMostBytes || stored.size() > kMostBytes) {
        return absl::DataLossError("extent: size that LZ4 can't have");
      }
      const int size = LZ4_decompress_safe(
          stored.data(), raw.data(), static_cast<int>(stored.size()), static_cast<int>(raw.size()));
      if (size < 0) return absl::DataLossError("extent: LZ4 block is damaged");
      if (static_cast<std::size_t>(size) != raw.size()) {
        return absl::DataLossError("extent: LZ4 block is too short");
      }
      return absl::OkStatus();
    }
    case Codec::kZstd: {
      const std::size_t size =
          ZSTD_decompress(raw.data(), raw.size(), stored.data(), stored.size());
      if (ZSTD_isError(size)) return absl::DataLossError("extent: zstd frame is damaged");
      if (size != raw.size() || raw.empty()) {
        return absl::DataLossError("extent: zstd frame is too short");
      }
      return absl::OkStatus();
    }
  }
  return absl::DataLossError("extent: unknown codec");
}

}  // namespace parkade
