#include "src/server/slots_api.h"

#include <charconv>
#include <utility>

#include "src/server/api_json.h"

namespace parkade {
namespace {

constexpr std::size_t kMostBodyBytes = 64 << 10;
constexpr std::string_view kForbidden = "/\\:*?\"<>|";

absl::StatusOr<std::string> NameIn(std::string_view body) {
  if (body.size() > kMostBodyBytes) {
    return absl::InvalidArgumentError("the body is larger than 64 KiB");
  }
  // Refuses what is no UTF-8.
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the body is not a JSON object");
  const auto found = json.find("filename");
  if (found == json.end() || !found->is_string()) {
    return absl::InvalidArgumentError("'filename' is a string: the session's name");
  }
  std::string name = found->get<std::string>();
  if (name.empty() || name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError("'filename' has 1 to 255 bytes");
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || kForbidden.find(c) != std::string_view::npos) {
      return absl::InvalidArgumentError(
          "'filename' holds a control character or one of / \\ : * ? \" < > |");
    }
  }
  if (name == "." || name == ".." || name.front() == ' ' || name.back() == ' ' ||
      name.back() == '.') {
    return absl::InvalidArgumentError(
        "'filename' is not '.' or '..', and does not begin with a space or end with one or a dot");
  }
  return name;
}

ApiResponse JsonResponse(const Json& json) {
  return {200, json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace

absl::StatusOr<SlotRequest> ParseSlotRequest(std::string_view slot, std::string_view action,
                                             std::string_view body) {
  SlotRequest request;
  const auto parsed = std::from_chars(slot.data(), slot.data() + slot.size(), request.slot);
  if (slot.empty() || parsed.ec != std::errc() || parsed.ptr != slot.data() + slot.size() ||
      request.slot < 0) {
    return absl::InvalidArgumentError("Invalid slot ID");
  }
  if (action == "erase") return request;
  if (action == "save") {
    request.action = SlotRequest::Action::kSave;
  } else if (action == "restore") {
    request.action = SlotRequest::Action::kRestore;
  } else {
    return absl::InvalidArgumentError("Invalid action: it is save, restore or erase");
  }
  absl::StatusOr<std::string> name = NameIn(body);
  if (!name.ok()) return name.status();
  request.name = *std::move(name);
  return request;
}

ApiResponse SavedResponse(const SlotRequest& request, std::uint32_t tokens, std::uint64_t bytes,
                          double seconds, bool durable) {
  return JsonResponse({{"id_slot", request.slot},
                       {"filename", request.name},
                       {"n_saved", tokens},
                       {"n_written", bytes},
                       {"timings", {{"save_ms", seconds * 1e3}}},
                       {"durable", durable}});
}

ApiResponse RestoredResponse(const SlotRequest& request, std::uint32_t tokens, std::uint64_t bytes,
                             double seconds) {
  return JsonResponse({{"id_slot", request.slot},
                       {"filename", request.name},
                       {"n_restored", tokens},
                       {"n_read", bytes},
                       {"timings", {{"restore_ms", seconds * 1e3}}}});
}

ApiResponse ErasedResponse(const SlotRequest& request, std::uint32_t tokens) {
  return JsonResponse({{"id_slot", request.slot}, {"n_erased", tokens}});
}

}  // namespace parkade
