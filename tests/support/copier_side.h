// A device as tests of stage copiers see it: its memory, host memory that it likes, its copiers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/device/stage_copier.h"

namespace parkade::test {

// Aborts when there is no memory.
class CopierSide {
 public:
  virtual ~CopierSide() = default;
  // Why nothing can be tested; empty: it can.
  virtual std::string unavailable() const { return ""; }
  virtual int devices() const { return 1; }

  virtual std::shared_ptr<char> DeviceMemory(std::size_t bytes, int device) = 0;
  // Page-locked where that exists.
  virtual std::shared_ptr<char> HostMemory(std::size_t bytes) = 0;
  // At once, after whatever runs.
  virtual void Write(char* device, const std::string& bytes) = 0;
  virtual std::string Read(const char* device, std::size_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<StageCopier>> NewCopier(int device) = 0;
  // As work of the engine, on the stream that the copiers of device 0 wait for.
  virtual void WriteAsEngine(char* device, const std::string& bytes) = 0;
};

struct CopierKind {
  std::string name;
  std::function<std::unique_ptr<CopierSide>(std::uint64_t seed)> make;
};

inline void PrintTo(const CopierKind& kind, std::ostream* out) { *out << kind.name; }

// Of this test program.
std::vector<CopierKind> CopierKinds();

}  // namespace parkade::test
