#include "src/engine/llama/prompt_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "mtmd.h"
#include "src/format/checksum.h"

namespace parkade {
namespace {

// Every token of a chunk carries 30 bits of its hash, so fewer tell contents apart too rarely.
constexpr std::size_t kLeastChunkTokens = 4;

// SHA-256 of the file. Frames of a video are named by their number, and which picture that is
// depends on how the server was started.
bool TellsContent(std::string_view id) {
  return id.size() == 64 && id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What the rows of a chunk depend on besides the tokens before it; empty: it can't be told.
std::string ContentOf(const mtmd_input_chunk* chunk, bool wide) {
  const char* id = mtmd_input_chunk_get_id(chunk);
  const std::size_t tokens = mtmd_input_chunk_get_n_tokens(chunk);
  const llama_pos positions = mtmd_input_chunk_get_n_pos(chunk);
  if (id == nullptr || !TellsContent(id) || tokens < kLeastChunkTokens) return "";
  if (!wide && static_cast<std::size_t>(positions) != tokens) return "";
  std::string shape;
  if (const mtmd_image_tokens* image = mtmd_input_chunk_get_tokens_image(chunk)) {
    const mtmd_decoder_pos last = mtmd_image_tokens_get_decoder_pos(image, 0, tokens - 1);
    shape = absl::StrCat(last.t, " ", last.x, " ", last.y, " ", last.z);
  }
  return absl::StrCat(static_cast<int>(mtmd_input_chunk_get_type(chunk)), " ", tokens, " ",
                      positions, " ", shape, " ", id);
}

Token MediaToken(const Digest128& content, std::size_t number) {
  const Digest128 digest = Checksum(absl::StrCat(ToHex(content), " ", number));
  // Below LLAMA_TOKEN_NULL.
  return -2 - static_cast<Token>(digest.low & 0x3fffffff);
}

}  // namespace

CacheTokens CacheTokensOf(const server_tokens& prompt, bool wide) {
  CacheTokens result;
  result.tokens = TokensOf(prompt);
  result.cacheable = static_cast<std::uint32_t>(prompt.size());
  const auto first = std::find(result.tokens.begin(), result.tokens.end(), LLAMA_TOKEN_NULL);
  if (first == result.tokens.end()) return result;
  result.owned.assign(result.tokens.begin(), result.tokens.end());
  for (std::size_t i = first - result.tokens.begin(); i < prompt.size();) {
    if (prompt[i] != LLAMA_TOKEN_NULL) {
      ++i;
      continue;
    }
    const mtmd_input_chunk* chunk = prompt.find_chunk(i).get();
    const std::size_t count = mtmd_input_chunk_get_n_tokens(chunk);
    const std::string content = ContentOf(chunk, wide);
    if (content.empty()) {
      result.cacheable = static_cast<std::uint32_t>(i);
      break;
    }
    const Digest128 digest = Checksum(content);
    for (std::size_t k = 0; k < count; ++k) result.owned[i + k] = MediaToken(digest, k);
    result.media.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + count)});
    i += count;
  }
  result.tokens = result.owned;
  return result;
}

TokenPlaces PlacesOf(const server_tokens& prompt) {
  TokenPlaces places;
  std::vector<CellPlace> cells;
  for (std::size_t i = 0; i < prompt.size(); i += std::max<std::size_t>(cells.size(), 1)) {
    cells.clear();
    if (prompt[i] != LLAMA_TOKEN_NULL) {
      places.AddText(prompt[i]);
      continue;
    }
    const mtmd_input_chunk* chunk = prompt.find_chunk(i).get();
    const std::size_t count = mtmd_input_chunk_get_n_tokens(chunk);
    const mtmd_image_tokens* image = mtmd_input_chunk_get_tokens_image(chunk);
    for (std::size_t k = 0; k < count; ++k) {
      const llama_pos straight = places.next() + static_cast<llama_pos>(k);
      CellPlace cell{straight, straight, straight, LLAMA_TOKEN_NULL};
      if (image != nullptr) {
        const mtmd_decoder_pos at = mtmd_image_tokens_get_decoder_pos(image, places.next(), k);
        cell.position = static_cast<llama_pos>(at.t);
        cell.x = static_cast<llama_pos>(at.x);
        cell.y = static_cast<llama_pos>(at.y);
      }
      cells.push_back(cell);
    }
    places.AddMedia(cells, mtmd_input_chunk_get_n_pos(chunk));
  }
  return places;
}

server_tokens FirstTokens(const server_tokens& prompt, std::uint32_t count, bool has_mtmd) {
  server_tokens result(llama_tokens(), has_mtmd);
  for (std::size_t i = 0; i < count;) {
    if (prompt[i] != LLAMA_TOKEN_NULL) {
      result.push_back(prompt[i++]);
      continue;
    }
    const mtmd_input_chunk* chunk = prompt.find_chunk(i).get();
    result.push_back_placeholder(chunk);
    i += mtmd_input_chunk_get_n_tokens(chunk);
  }
  return result;
}

}  // namespace parkade
