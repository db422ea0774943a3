// A prompt's media as the cache knows them. What a real projector makes of them: pictures_test.py.

#include <gtest/gtest.h>

#include "mtmd.h"
#include "src/engine/llama/prompt_tokens.h"
#include "src/engine/llama/token_places.h"

namespace parkade {
namespace {

// Text 1 to 5, then an image of 256 tokens that nobody has hashed.
server_tokens TextAndImage() {
  mtmd::input_chunks chunks(mtmd_test_create_input_chunks());
  return server_tokens(chunks, true);
}

TEST(Media, TextStandsAsItIs) {
  const server_tokens prompt(llama_tokens{7, 8, 9}, false);
  const CacheTokens tokens = CacheTokensOf(prompt, false);
  EXPECT_EQ(tokens.tokens, TokensOf(prompt));
  EXPECT_EQ(tokens.tokens.data(), &prompt[0]);
  EXPECT_EQ(tokens.cacheable, 3u);
  EXPECT_TRUE(tokens.media.empty());
  EXPECT_FALSE(HasMedia(prompt));
  EXPECT_TRUE(CacheTokensOf(server_tokens(), true).tokens.empty());
}

TEST(Media, AnImageThatNobodyHashedIsNotKept) {
  const server_tokens prompt = TextAndImage();
  ASSERT_EQ(prompt.size(), 261u);
  EXPECT_TRUE(HasMedia(prompt));
  const CacheTokens tokens = CacheTokensOf(prompt, true);
  EXPECT_EQ(tokens.tokens.size(), 261u);
  EXPECT_EQ(tokens.cacheable, 5u);
  EXPECT_TRUE(tokens.media.empty());
}

TEST(Media, TheFirstTokensKeepTheirChunks) {
  const server_tokens prompt = TextAndImage();
  const server_tokens text = FirstTokens(prompt, 4, true);
  EXPECT_EQ(text.size(), 4u);
  const server_tokens all = FirstTokens(prompt, 261, true);
  EXPECT_EQ(all.get_common_prefix(prompt), 261u);
  EXPECT_EQ(all.pos_next(), prompt.pos_next());
}

TEST(Media, PlacesAreFoundAgain) {
  const TokenPlaces text(llama_tokens{5, 6, 7});
  std::uint32_t hint = 0;
  for (llama_pos i : {0, 1, 2, 1, 0}) {
    EXPECT_EQ(text.Find(i, i, i, &hint), static_cast<std::uint32_t>(i));
    EXPECT_EQ(hint, static_cast<std::uint32_t>(i) + 1);
  }
  EXPECT_EQ(text.Find(3, 3, 3, &hint), 3u);
  EXPECT_EQ(text.Find(1, 1, 2, &hint), 3u);
  EXPECT_EQ(text.Find(-1, -1, -1, &hint), 3u);
  EXPECT_EQ(text[2].token, 7);

  const TokenPlaces media = PlacesOf(TextAndImage());
  ASSERT_EQ(media.size(), 261u);
  EXPECT_EQ(media.next(), TextAndImage().pos_next());
  for (std::uint32_t i = 0; i < media.size(); ++i) {
    const CellPlace& place = media[i];
    hint = 0;
    EXPECT_EQ(media.Find(place.position, place.x, place.y, &hint), i);
    EXPECT_EQ(place.token == LLAMA_TOKEN_NULL, i >= 5);
    EXPECT_GE(place.position, media[i == 0 ? 0 : i - 1].position);
  }
}

}  // namespace
}  // namespace parkade
