// Session: what a client changed where its prompt leaves what is stored. Texts go to the log only
// when it is verbose.

#include <algorithm>
#include <iterator>
#include <string>

#include "common.h"
#include "llama.h"
#include "src/engine/llama/session.h"
#include "src/server/changed_stamp.h"

namespace parkade {
namespace {

// Media have no text.
std::string TextOf(llama_context* context, absl::Span<const Token> tokens) {
  llama_tokens text;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(text),
               [](Token token) { return token >= 0; });
  return common_detokenize(context, text, true);
}

// Of one line, at most `most` bytes: the first ones, or the last ones.
std::string Shown(const std::string& text, bool last) {
  constexpr std::size_t most = 100;
  const std::size_t bytes = std::min(text.size(), most);
  std::string out = last ? text.substr(text.size() - bytes) : text.substr(0, bytes);
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return out;
}

}  // namespace

std::string Session::NameChange(absl::Span<const Token> before, absl::Span<const Token> stored,
                                absl::Span<const Token> wanted) const {
  if (!Active()) return "";
  const std::string equal = TextOf(loaded_.ctx_tgt, before);
  const std::string theirs = TextOf(loaded_.ctx_tgt, stored);
  const std::string mine = TextOf(loaded_.ctx_tgt, wanted);
  Log(LogLevel::kDebug, "the prompt differs: '..." + Shown(equal, true) + "' went on '" +
                            Shown(theirs, false) + "...', now '" + Shown(mine, false) + "...'");
  return std::string(ChangedStampName(ClassifyChange(equal, theirs, mine)));
}

}  // namespace parkade
