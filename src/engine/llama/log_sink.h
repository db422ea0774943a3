// Events as lines of llama-server's log.
#pragma once

#include <string_view>

#include "parkade/events.h"

namespace parkade {

// Thread safe. Lines carry no text of any prompt.
class LogSink : public EventSink {
 public:
  void OnLookup(const LookupRecord& record) override;
  void OnPark(const ParkEvent& event) override;
  void OnSkippedPark(SkipReason reason, std::uint32_t tokens) override;
  void OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) override;
  void OnCorrupt(TierKind tier) override;
  void OnTierError(TierKind tier, std::string_view what) override;
  void Log(LogLevel level, std::string_view line) override;
};

}  // namespace parkade
