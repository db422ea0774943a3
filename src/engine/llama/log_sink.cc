#include "src/engine/llama/log_sink.h"

#include <string>

#include "log.h"
#include "src/format/checksum.h"
#include "src/server/lookup_line.h"

namespace parkade {

void LogSink::Log(LogLevel level, std::string_view line) {
  const std::string text(line);
  switch (level) {
    case LogLevel::kDebug:
      LOG_DBG("parkade: %s\n", text.c_str());
      break;
    case LogLevel::kInfo:
      LOG_INF("parkade: %s\n", text.c_str());
      break;
    case LogLevel::kWarning:
      LOG_WRN("parkade: %s\n", text.c_str());
      break;
    case LogLevel::kError:
      LOG_ERR("parkade: %s\n", text.c_str());
      break;
  }
}

void LogSink::OnLookup(const LookupRecord& record) {
  Log(LogLevel::kInfo, FormatLookupLine(record));
  const std::optional<std::string> why = FormatMissLine(record);
  if (why.has_value()) Log(LogLevel::kInfo, *why);
}

void LogSink::OnPark(const ParkEvent& event) {
  char line[160];
  snprintf(line, sizeof(line), "park: %s/%u, %u tokens, %.1f MiB, captured in %.1f ms",
           ToHex(event.key.conversation).c_str(), event.key.park, event.tokens,
           static_cast<double>(event.payload_bytes) / (1 << 20), event.capture_seconds * 1e3);
  Log(LogLevel::kDebug, line);
}

void LogSink::OnSkippedPark(SkipReason reason, std::uint32_t tokens) {
  Log(LogLevel::kDebug, "not parked: " + std::to_string(tokens) + " tokens, " +
                            std::string(SkipReasonName(reason)));
}

void LogSink::OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) {
  Log(LogLevel::kInfo, "evicted from " + std::string(TierName(tier)) + ": " +
                           std::to_string(bytes >> 20) + " MiB, " +
                           std::string(EvictReasonName(reason)));
}

void LogSink::OnCorrupt(TierKind tier) {
  Log(LogLevel::kWarning,
      "damaged bytes in " + std::string(TierName(tier)) + "; what stood on them is given up");
}

void LogSink::OnTierError(TierKind tier, std::string_view what) {
  Log(LogLevel::kWarning, std::string(TierName(tier)) + ": " + std::string(what));
}

}  // namespace parkade
