// Sequences whose rows were moved by a context shift. Serving thread only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace parkade {

class ShiftLog {
 public:
  struct Shift {
    std::int32_t sequence = 0;
    std::int32_t position = 0;  // rows from here on are not those of their tokens any more
  };
  static void Note(std::int32_t sequence, std::int32_t position) {
    Entries().push_back(Shift{sequence, position});
  }
  // What was noted since the last Take.
  static std::vector<Shift> Take() { return std::exchange(Entries(), {}); }

 private:
  static std::vector<Shift>& Entries() {
    static thread_local std::vector<Shift> entries;
    return entries;
  }
};

}  // namespace parkade
