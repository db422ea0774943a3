// Numbers that a run of a test may be given: seeds, steps.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace parkade::test {

inline std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace parkade::test
