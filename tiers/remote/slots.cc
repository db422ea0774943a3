#include "tiers/remote/slots.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"

namespace parkade::remote {
namespace {

// CRC-16/XMODEM: polynomial 0x1021, begun with 0.
constexpr std::array<std::uint16_t, 256> MakeTable() {
  std::array<std::uint16_t, 256> table = {};
  for (unsigned byte = 0; byte < 256; ++byte) {
    unsigned crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021u : 0u);
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}
constexpr std::array<std::uint16_t, 256> kTable = MakeTable();

std::uint16_t Crc16(std::string_view bytes) {
  std::uint16_t crc = 0;
  for (const char c : bytes) {
    const unsigned index = (crc >> 8) ^ static_cast<unsigned char>(c);
    crc = static_cast<std::uint16_t>((crc << 8) ^ kTable[index]);
  }
  return crc;
}

absl::Status NotSlots() {
  return absl::InternalError("the answer to CLUSTER SLOTS is not understood");
}

bool IsPort(std::int64_t port) { return port >= 1 && port <= 65535; }

Endpoint Known(std::string_view host, int port, const Endpoint& asked) {
  return {host.empty() || host == "?" ? asked.host : std::string(host), port};
}

// Of one node in the reply, which begins with host and port. Its index in `nodes`, where it is
// added if it is new.
absl::StatusOr<std::uint16_t> IndexOf(const Reply& node, const Endpoint& asked,
                                      std::vector<Endpoint>* nodes) {
  const std::vector<Reply>& parts = node.elements;
  if (parts.size() < 2 || parts[1].kind != Reply::Kind::kInteger || !IsPort(parts[1].integer)) {
    return NotSlots();
  }
  const Endpoint endpoint = Known(parts[0].bytes, static_cast<int>(parts[1].integer), asked);
  const auto it = std::find(nodes->begin(), nodes->end(), endpoint);
  if (it != nodes->end()) return static_cast<std::uint16_t>(it - nodes->begin());
  if (nodes->size() == SlotMap::kNobody) return NotSlots();
  nodes->push_back(endpoint);
  return static_cast<std::uint16_t>(nodes->size() - 1);
}

// Cuts the first word off.
std::string_view TakeWord(std::string_view* text) {
  const std::size_t space = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, space);
  text->remove_prefix(std::min(space + 1, text->size()));
  return word;
}

bool ToNumber(std::string_view text, int* number) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), number);
}

}  // namespace

int SlotOf(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != key.npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != key.npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return Crc16(key) % kSlotCount;
}

absl::StatusOr<SlotMap> ParseSlots(const Reply& reply, const Endpoint& asked) {
  if (reply.kind != Reply::Kind::kArray) return NotSlots();
  SlotMap map;
  map.owner.fill(SlotMap::kNobody);
  for (const Reply& range : reply.elements) {
    if (range.elements.size() < 3) return NotSlots();
    const std::int64_t first = range.elements[0].integer;
    const std::int64_t last = range.elements[1].integer;
    if (first < 0 || last < first || last >= kSlotCount) return NotSlots();
    const absl::StatusOr<std::uint16_t> master = IndexOf(range.elements[2], asked, &map.masters);
    if (!master.ok()) return master.status();
    for (std::size_t i = 3; i < range.elements.size(); ++i) {
      const absl::StatusOr<std::uint16_t> replica =
          IndexOf(range.elements[i], asked, &map.replicas);
      if (!replica.ok()) return replica.status();
    }
    std::fill(map.owner.begin() + first, map.owner.begin() + last + 1, *master);
  }
  return map;
}

std::optional<Redirect> ParseRedirect(std::string_view error, const Endpoint& asked) {
  const std::string_view code = TakeWord(&error);
  if (code != "MOVED" && code != "ASK") return std::nullopt;
  Redirect redirect;
  redirect.ask = code == "ASK";
  if (!ToNumber(TakeWord(&error), &redirect.slot)) return std::nullopt;
  if (redirect.slot < 0 || redirect.slot >= kSlotCount) return std::nullopt;
  // An IPv6 address stands there without brackets.
  const std::string_view to = TakeWord(&error);
  const std::size_t colon = to.rfind(':');
  if (colon == to.npos || !ToNumber(to.substr(colon + 1), &redirect.to.port)) return std::nullopt;
  if (!IsPort(redirect.to.port)) return std::nullopt;
  redirect.to = Known(to.substr(0, colon), redirect.to.port, asked);
  return redirect;
}

}  // namespace parkade::remote
