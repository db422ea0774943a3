// Where the state of a prompt is kept while it is read. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "chat.h"
#include "parkade/image.h"

namespace parkade {

// Nearer to the last one a boundary is not worth its bytes: so much is read again in no time.
inline constexpr std::uint32_t kBoundaryGap = 64;

struct PromptBoundaries {
  // Positions at which a batch is to end and the state is kept, ascending, all in (0, prompt).
  std::vector<std::uint32_t> wanted;
  // Where messages of the user begin: the first is the end of the system prompt.
  std::vector<std::uint32_t> user_starts;
  // Kept however near the last one is: the prompt that is asked again needs a state before its end.
  std::uint32_t before_end = 0;  // 0: none

  bool Wants(std::uint32_t position, std::uint32_t last_kept) const;
};

// `cacheable_tokens`: what is after them can't be kept. `state`: the model has recurrent state;
// without it a window is all there is. `media`: kept where one begins, never inside of it.
PromptBoundaries BoundariesOf(const common_chat_msg_spans& spans, std::uint32_t prompt_tokens,
                              std::uint32_t cacheable_tokens, bool state,
                              const std::vector<TokenRange>& media = {});

}  // namespace parkade
