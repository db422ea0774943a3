#include "src/device/host_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace parkade {
namespace {

// Below this the lines that are only partly written cost more than the streaming saves.
constexpr std::size_t kSmallestStreamed = 4096;
constexpr std::size_t kLine = 64;

#ifdef __SSE2__
// `to` at a line's begin, `lines` whole lines.
void StreamLines(char* to, const char* from, std::size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
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
  _mm_sfence();
}
#else
void StreamLines(char* to, const char* from, std::size_t lines) {
  std::memcpy(to, from, lines * kLine);
}
#endif

}  // namespace

void CopyToRest(char* to, const char* from, std::size_t bytes) {
  if (bytes < kSmallestStreamed) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  const std::size_t lines = bytes / kLine;
  StreamLines(to, from, lines);
  std::memcpy(to + lines * kLine, from + lines * kLine, bytes % kLine);
}

}  // namespace parkade
