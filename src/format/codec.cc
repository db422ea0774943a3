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

// First the bytes at even places, then those at odd ones, then the last one of an odd number: of
// 16-bit floats the signs and exponents, which are alike, come to stand together.
std::string Shuffled(absl::Span<const char> raw) {
  std::string out(raw.size(), '\0');
  const std::size_t half = raw.size() / 2;
  const char* from = raw.data();
  char* shuffled = out.data();
  for (std::size_t i = 0; i < half; ++i) {
    shuffled[i] = from[2 * i];
    shuffled[half + i] = from[2 * i + 1];
  }
  if (raw.size() % 2 == 1) shuffled[raw.size() - 1] = from[raw.size() - 1];
  return out;
}

void Unshuffle(absl::Span<const char> shuffled, char* raw) {
  const std::size_t half = shuffled.size() / 2;
  const char* from = shuffled.data();
  for (std::size_t i = 0; i < half; ++i) {
    raw[2 * i] = from[i];
    raw[2 * i + 1] = from[half + i];
  }
  if (shuffled.size() % 2 == 1) raw[shuffled.size() - 1] = from[shuffled.size() - 1];
}

std::size_t CompressShuffled(absl::Span<const char> raw, std::string* stored) {
  return CompressZstd(Shuffled(raw), stored);
}

// A piece of a sample is shorter than zstd's blocks, of which each has its own table: halves are
// packed by themselves, as they will be in a whole extent.
std::size_t CompressHalves(absl::Span<const char> raw, std::string* stored) {
  const std::string shuffled = Shuffled(raw);
  const absl::Span<const char> bytes = shuffled;
  const std::size_t first = CompressZstd(bytes.subspan(0, raw.size() / 2), stored);
  const std::size_t second = CompressZstd(bytes.subspan(raw.size() / 2), stored);
  return first == 0 || second == 0 ? 0 : first + second;
}

// Size of the sample's pieces together after `compress`; 0: it could not. Not of no bytes.
template <typename Compressor>
std::size_t SampleSize(absl::Span<const char> raw, std::size_t* sample_bytes,
                       const Compressor& compress) {
  const std::size_t piece_bytes = std::min(raw.size(), kSamplePieceBytes);
  const std::size_t pieces = std::min(kSamplePieces, raw.size() / piece_bytes);
  *sample_bytes = pieces * piece_bytes;
  std::size_t compressed_bytes = 0;
  std::string scratch;
  for (std::size_t i = 0; i < pieces; ++i) {
    // From the first bytes to the last ones, evenly; at an even place, as 16-bit floats stand.
    const std::size_t begin = pieces == 1 ? 0 : (raw.size() - piece_bytes) / (pieces - 1) * i;
    const std::size_t size = compress(raw.subspan(begin & ~std::size_t{1}, piece_bytes), &scratch);
    if (size == 0) return 0;
    compressed_bytes += size;
  }
  return compressed_bytes;
}

bool SampleShrinks(absl::Span<const char> raw) {
  std::size_t sample_bytes = 0;
  const std::size_t size = SampleSize(raw, &sample_bytes, CompressLz4);
  return size > 0 && IsWorthIt(sample_bytes, size);
}

struct ZstdSample {
  std::size_t bytes = 0;
  std::size_t plain = 0;
  std::size_t shuffled = 0;
};

ZstdSample SampleZstd(absl::Span<const char> raw) {
  ZstdSample sample;
  sample.plain = SampleSize(raw, &sample.bytes, CompressZstd);
  sample.shuffled = SampleSize(raw, &sample.bytes, CompressHalves);
  return sample;
}

bool ShufflingHelps(absl::Span<const char> raw) {
  const ZstdSample sample = SampleZstd(raw);
  return sample.shuffled > 0 && sample.shuffled < sample.plain;
}

absl::Status DecompressZstd(std::string_view stored, absl::Span<char> raw) {
  const std::size_t size = ZSTD_decompress(raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size)) return absl::DataLossError("extent: zstd frame is damaged");
  if (size != raw.size() || raw.empty()) {
    return absl::DataLossError("extent: zstd frame is too short");
  }
  return absl::OkStatus();
}

Codec KeepRaw(std::string* stored) {
  stored->clear();
  return Codec::kRaw;
}

}  // namespace

Codec Compress(CodecChoice choice, absl::Span<const char> raw, std::string* stored) {
  if (raw.empty() || choice == CodecChoice::kNone) return KeepRaw(stored);
  if (choice == CodecChoice::kAuto && !SampleShrinks(raw)) return KeepRaw(stored);
  Codec codec = Codec::kLz4;
  if (choice == CodecChoice::kZstd) {
    codec = ShufflingHelps(raw) ? Codec::kZstdShuffled : Codec::kZstd;
  }
  const std::size_t size = codec == Codec::kLz4    ? CompressLz4(raw, stored)
                           : codec == Codec::kZstd ? CompressZstd(raw, stored)
                                                   : CompressShuffled(raw, stored);
  // Stored bytes of a codec are always fewer than raw ones; readers rely on it.
  if (size == 0 || size >= raw.size()) return KeepRaw(stored);
  if (choice == CodecChoice::kAuto && !IsWorthIt(raw.size(), size)) return KeepRaw(stored);
  stored->resize(size);
  return codec;
}

double ZstdSavedShare(absl::Span<const char> raw) {
  if (raw.empty()) return 0;
  const ZstdSample sample = SampleZstd(raw);
  const std::size_t size = std::min(sample.plain, sample.shuffled);
  if (size == 0 || size >= sample.bytes) return 0;
  return 1 - static_cast<double>(size) / static_cast<double>(sample.bytes);
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
    case Codec::kZstd:
      return DecompressZstd(stored, raw);
    case Codec::kZstdShuffled: {
      std::string shuffled(raw.size(), '\0');
      const absl::Status status = DecompressZstd(stored, absl::MakeSpan(shuffled));
      if (status.ok()) Unshuffle(shuffled, raw.data());
      return status;
    }
  }
  return absl::DataLossError("extent: unknown codec");
}

}  // namespace parkade
