// A configuration file: the text of --conversation-cache-config, and of a router for its children.
#include <algorithm>

#include "src/server/flag_values.h"
#include "src/server/flags.h"
#include "tests/fuzz/fuzz_target.h"

namespace parkade::fuzz {
namespace {

constexpr std::size_t kSlackBytes = 64 << 10;
constexpr std::size_t kGrowth = 4;
constexpr std::size_t kLongestMessage = 400;

const char* const kProgram[] = {"parkade-server"};

// An error is one line that a terminal can show, however the file looks.
void CheckMessage(absl::string_view message) {
  FUZZ_CHECK(!message.empty() && message.size() <= kLongestMessage);
  FUZZ_CHECK(std::none_of(message.begin(), message.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  }));
}

void CheckText(std::string_view text) {
  const absl::StatusOr<FlagValues> values = ParseFlagText("file", text);
  if (!values.ok()) return CheckMessage(values.status().message());
  const auto flags = ParseFlagsText(1, kProgram, text, "file");
  FUZZ_CHECK(flags.ok());
  // What is in force can be handed on, and is in force there as well.
  const absl::StatusOr<std::string> written = FlagsText(*flags);
  if (!written.ok()) return CheckMessage(written.status().message());
  const auto again = ParseFlagsText(1, kProgram, *written, "again");
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*FlagsText(*again) == *written);
  FUZZ_CHECK(again->disk.directory == flags->disk.directory &&
             again->disk.budget_bytes == flags->disk.budget_bytes &&
             again->disk.key_file == flags->disk.key_file &&
             again->cache.ram_budget_bytes == flags->cache.ram_budget_bytes);
}

}  // namespace
}  // namespace parkade::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parkade::fuzz;
  const AllocationWatch watch;
  CheckText({reinterpret_cast<const char*>(data), size});
  FUZZ_CHECK(watch.largest_bytes() <= kSlackBytes + kGrowth * size);
  return 0;
}
