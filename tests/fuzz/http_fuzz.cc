// Requests to our routes. Input: a line with method and path, a line with the query, the body.
#include <set>
#include <utility>

#include "nlohmann/json.hpp"
#include "src/server/api.h"
#include "src/server/slots_api.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/fake_cache.h"

namespace parkade::fuzz {
namespace {

constexpr std::size_t kSlackBytes = 256 << 10;
constexpr std::size_t kGrowth = 64;

std::pair<std::string, std::string> Split(std::string_view text, char at) {
  const std::size_t place = text.find(at);
  if (place == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, place)), std::string(text.substr(place + 1))};
}

QueryParameters Query(std::string_view text) {
  QueryParameters query;
  while (!text.empty()) {
    const std::size_t end = text.find('&');
    query.insert(Split(text.substr(0, end), '='));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return query;
}

// Every answer is JSON in UTF-8; every refusal has the error shape with its own code.
void CheckAnswer(const ApiResponse& response) {
  static const std::set<int> kCodes = {200, 400, 404, 405, 409, 503, 507};
  FUZZ_CHECK(kCodes.count(response.status) == 1);
  const auto json = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  FUZZ_CHECK(json.is_object());
  FUZZ_CHECK(json.contains("error") == (response.status != 200));
  if (response.status == 200) return;
  const auto& error = json.at("error");
  FUZZ_CHECK(error.at("code") == response.status && error.at("message").is_string() &&
             error.at("type").is_string());
}

void CheckRoute(const std::string& method, const std::string& path, const QueryParameters& query,
                std::string_view body) {
  FakeCache cache;
  const ApiResponse response = Handle(cache, method, path, query, body);
  CheckAnswer(response);
  const std::string_view allowed = AllowedMethods(path);
  if (allowed.empty()) FUZZ_CHECK(response.status == 404);
  const bool known = method == "GET" || method == "POST" || method == "DELETE";
  if (known && !allowed.empty()) {
    const bool listed = allowed.find(method) != std::string_view::npos;
    FUZZ_CHECK((response.status == 405) != listed);
  }
}

void CheckSlot(std::string_view slot, std::string_view action, std::string_view body) {
  const absl::StatusOr<SlotRequest> request = ParseSlotRequest(slot, action, body);
  if (!request.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(request.status()));
    return CheckAnswer(ErrorResponse(request.status()));
  }
  const std::string& name = request->name;
  FUZZ_CHECK(request->slot >= 0 && name.size() <= 255);
  FUZZ_CHECK(name.empty() == (request->action == SlotRequest::Action::kErase));
  FUZZ_CHECK(name.find('/') == std::string::npos && name.find('\0') == std::string::npos);
  CheckAnswer(SavedResponse(*request, 1, 2, 0.5, true));
  CheckAnswer(RestoredResponse(*request, 1, 2, 0.5));
  CheckAnswer(ErasedResponse(*request, 1));
}

}  // namespace
}  // namespace parkade::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parkade::fuzz;
  Input input(data, size);
  const auto [method, path] = Split(input.Line(), ' ');
  const std::string query(input.Line());
  const std::string body(input.Rest());
  const AllocationWatch watch;
  CheckRoute(method, path, Query(query), body);
  CheckSlot(path, method, body);
  FUZZ_CHECK(watch.largest_bytes() <= kSlackBytes + kGrowth * size);
  return 0;
}
