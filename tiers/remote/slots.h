// Which node of a cluster has which key: 16384 slots by CRC16 of the key.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tiers/remote/reply.h"
#include "tiers/remote/url.h"

namespace parkade::remote {

inline constexpr int kSlotCount = 16384;

// Of a key, or of what stands between its first '{' and the next '}' if that is not empty.
int SlotOf(std::string_view key);

struct SlotMap {
  static constexpr std::uint16_t kNobody = 0xffff;
  std::vector<Endpoint> masters;
  std::vector<Endpoint> replicas;
  std::array<std::uint16_t, kSlotCount> owner;  // index into masters
};

// Of a reply to CLUSTER SLOTS. A host that is empty or "?" is that of `asked`, who answered.
// Internal: it is no such reply.
absl::StatusOr<SlotMap> ParseSlots(const Reply& reply, const Endpoint& asked);

struct Redirect {
  bool ask = false;  // this once; else for good
  int slot = 0;
  Endpoint to;
};

// Of "MOVED 3999 127.0.0.1:6381" or "ASK 3999 127.0.0.1:6381"; nothing: another error.
std::optional<Redirect> ParseRedirect(std::string_view error, const Endpoint& asked);

}  // namespace parkade::remote
