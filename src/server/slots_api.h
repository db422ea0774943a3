// POST /slots/{id}?action=save|restore|erase: requests and answers, without HTTP and without an
// engine. The shapes are llama-server's; an answer to save has `durable` besides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/server/api.h"

namespace parkade {

struct SlotRequest {
  enum class Action { kSave, kRestore, kErase };
  Action action = Action::kErase;
  int slot = -1;
  std::string name;  // of the session; empty for kErase
};

// InvalidArgument, in one line that says what is wrong, for a slot that is no number, another
// action, a body that is no JSON object, and a name that is not 1 to 255 bytes of UTF-8 or that a
// file could not have: no path is made from it, but people use such names as file names elsewhere.
absl::StatusOr<SlotRequest> ParseSlotRequest(std::string_view slot, std::string_view action,
                                             std::string_view body);

// `bytes`: payload held for, or read for, the session.
ApiResponse SavedResponse(const SlotRequest& request, std::uint32_t tokens, std::uint64_t bytes,
                          double seconds, bool durable);
ApiResponse RestoredResponse(const SlotRequest& request, std::uint32_t tokens, std::uint64_t bytes,
                             double seconds);
ApiResponse ErasedResponse(const SlotRequest& request, std::uint32_t tokens);

}  // namespace parkade
