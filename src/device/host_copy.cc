#include "src/device/host_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace parkade {
namespace {

// Below this the lines that are only partly written cost more than the streaming saves.
constexpr std::size_t kSmallestStreamed = 4096;
// From here on a piece is copied in four parts at once; smaller ones wait for others of their size.
constexpr std::size_t kSmallestSplit = 16384;
constexpr std::size_t kLine = 64;

#ifdef __SSE2__
void StreamLine(char* to, const char* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i first = _mm_loadu_si128(source);
  const __m128i second = _mm_loadu_si128(source + 1);
  const __m128i third = _mm_loadu_si128(source + 2);
  const __m128i fourth = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, first);
  _mm_stream_si128(target + 1, second);
  _mm_stream_si128(target + 2, third);
  _mm_stream_si128(target + 3, fourth);
}
// Streamed stores are not ordered with others, a mutex that is released after them included.
void EndStream() { _mm_sfence(); }
#else
void StreamLine(char* to, const char* from) { std::memcpy(to, from, kLine); }
void EndStream() {}
#endif

// To the next line's begin.
std::size_t HeadBytes(const char* to) {
  return (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
}

}  // namespace

void PieceCopier::CopyTogether(const Piece* pieces, std::size_t count, std::size_t bytes) {
  Piece rest[kTogether];
  std::size_t lines = bytes / kLine;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t head = HeadBytes(pieces[i].to);
    std::memcpy(pieces[i].to, pieces[i].from, head);
    rest[i] = {pieces[i].to + head, pieces[i].from + head};
    lines = std::min(lines, (bytes - head) / kLine);
  }
  const std::size_t streamed = lines * kLine;
  for (std::size_t at = 0; at < streamed; at += kLine) {
    for (std::size_t i = 0; i < count; ++i) StreamLine(rest[i].to + at, rest[i].from + at);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto head = static_cast<std::size_t>(rest[i].to - pieces[i].to);
    std::memcpy(rest[i].to + streamed, rest[i].from + streamed, bytes - head - streamed);
  }
}

void PieceCopier::CopyWaiting() {
  CopyTogether(waiting_, count_, bytes_);
  count_ = 0;
}

void PieceCopier::Add(char* to, const char* from, std::size_t bytes) {
  if (bytes < kSmallestStreamed) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  if (bytes >= kSmallestSplit) {
    const std::size_t part = bytes / kTogether / kLine * kLine;
    Piece parts[kTogether];
    for (std::size_t i = 0; i < kTogether; ++i) parts[i] = {to + i * part, from + i * part};
    CopyTogether(parts, kTogether, part);
    const std::size_t done = kTogether * part;
    std::memcpy(to + done, from + done, bytes - done);
    return;
  }
  if (bytes != bytes_ && count_ > 0) CopyWaiting();
  bytes_ = bytes;
  waiting_[count_++] = {to, from};
  if (count_ == kTogether) CopyWaiting();
}

void PieceCopier::Flush() {
  if (count_ > 0) CopyWaiting();
  EndStream();
}

}  // namespace parkade
