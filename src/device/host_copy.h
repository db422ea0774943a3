// Copies between memory of an engine that lies in the host's RAM and packed bytes.
#pragma once

#include <cstddef>

namespace parkade {

// Copies pieces past the processor's caches where the machine can do that, so that a destination
// that nobody reads soon is not read first and does not push out what others still need; and four
// at a time, because a processor reads ahead only within a page: one piece after the other would
// wait at each page's begin. Pieces of less than 4 KiB go through memcpy. For one thread.
// Against memcpy of the same bytes: the `_vs_memcpy` figures of `parkade-bench run copy`.
class PieceCopier {
 public:
  PieceCopier() = default;
  ~PieceCopier() { Flush(); }
  PieceCopier(const PieceCopier&) = delete;
  PieceCopier& operator=(const PieceCopier&) = delete;

  // As memcpy, at the latest by Flush. No piece may overlap another one's destination.
  void Add(char* to, const char* from, std::size_t bytes);
  // Whoever synchronises with the caller afterwards sees all bytes.
  void Flush();

 private:
  static constexpr std::size_t kTogether = 4;
  struct Piece {
    char* to = nullptr;
    const char* from = nullptr;
  };
  static void CopyTogether(const Piece* pieces, std::size_t count, std::size_t bytes);
  void CopyWaiting();

  Piece waiting_[kTogether];  // all of `bytes_` bytes
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

// One piece.
inline void CopyToRest(char* to, const char* from, std::size_t bytes) {
  PieceCopier().Add(to, from, bytes);
}

}  // namespace parkade
