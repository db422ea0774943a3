#include "src/engine/llama/prompt_boundaries.h"

#include <algorithm>

namespace parkade {
namespace {

// What an answer begins with, as the template writes it, is not longer.
constexpr std::uint32_t kAnswerHead = 32;
// Without roles: few enough to be read again, enough for what a template may put there.
constexpr std::uint32_t kBeforePromptEnd = 4;

}  // namespace

bool PromptBoundaries::Wants(std::uint32_t position, std::uint32_t last_kept) const {
  if (!std::binary_search(wanted.begin(), wanted.end(), position)) return false;
  return position == before_end || position >= last_kept + kBoundaryGap;
}

PromptBoundaries BoundariesOf(const common_chat_msg_spans& spans, std::uint32_t prompt_tokens,
                              std::uint32_t cacheable_tokens, bool state,
                              const std::vector<TokenRange>& media) {
  PromptBoundaries boundaries;
  std::vector<std::uint32_t>& wanted = boundaries.wanted;
  std::uint32_t answer = 0;
  for (const common_chat_msg_span& span : spans.spans) {
    const auto position = static_cast<std::uint32_t>(span.pos);
    if (span.role == COMMON_CHAT_ROLE_USER) boundaries.user_starts.push_back(position);
    if (span.role == COMMON_CHAT_ROLE_ASSISTANT) answer = position;
  }
  wanted = boundaries.user_starts;
  if (state && prompt_tokens > kBeforePromptEnd) {
    // A client that sends the answer back without its reasoning leaves the prompt within the head
    // of the answer, however long that is.
    const bool head = answer > 0 && answer < prompt_tokens && prompt_tokens - answer <= kAnswerHead;
    boundaries.before_end = head ? answer : prompt_tokens - kBeforePromptEnd;
    wanted.push_back(boundaries.before_end);
    for (std::uint64_t at = kFirstBetween; at < prompt_tokens; at *= 2) {
      wanted.push_back(static_cast<std::uint32_t>(at));
    }
  }
  for (const TokenRange& range : media) {
    wanted.push_back(range.begin);
    std::erase_if(wanted, [&](std::uint32_t at) { return at > range.begin && at < range.end; });
  }
  std::erase_if(wanted, [&](std::uint32_t at) {
    return at == 0 || at >= prompt_tokens || at > cacheable_tokens;
  });
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  return boundaries;
}

}  // namespace parkade
