// An engine behind parkade.h with rows that follow from its tokens, for the C API's tests.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parkade/parkade.h"
#include "tests/support/copier_side.h"

namespace parkade::test {

struct CModel {
  std::vector<parkade_plane> planes;
  std::uint32_t window_tokens = 0;
  std::string weights = "a";
};
// Key and value of `full` layers; window and state layers of their own follow.
CModel MakeCModel(int full, int window = 0, int state = 0);

using Layers = std::vector<std::vector<std::uint16_t>>;  // by stage

struct CEngineOptions {
  CModel model = {};
  Layers stages = {{}};              // one empty stage: all layers
  std::uint32_t rows = 2048;         // of a full plane
  std::uint32_t window_rows = 0;     // of a window plane, a ring; 0: as many as `rows`
  std::set<std::size_t> paged = {};  // planes in pages of 16 rows, in any order
  // Not null: stage i is on card cards[i] of it.
  CopierSide* side = nullptr;
  std::vector<int> cards = {};
};

std::vector<std::int32_t> CTokens(std::uint32_t seed, std::size_t count);

// Opens a model and a sequence of its own, closes both.
class CEngine {
 public:
  CEngine(parkade_cache* cache, CEngineOptions options);
  ~CEngine();
  CEngine(const CEngine&) = delete;
  CEngine& operator=(const CEngine&) = delete;

  parkade_model* model() { return model_; }
  parkade_sequence* sequence() { return sequence_; }
  std::vector<parkade_plane_rows>& rows() { return rows_; }
  std::vector<std::int32_t>& pages(std::size_t plane) { return pages_[plane]; }

  // All that memory holds is that of these tokens.
  void Decode(const std::vector<std::int32_t>& tokens);
  void Wipe();
  // What is wrong with the rows of tokens [0, count); empty: nothing.
  std::string Wrong(const std::vector<std::int32_t>& tokens, std::uint32_t count,
                    std::uint32_t window_begin);

  parkade_status SetPlanes();
  // `window_begin` as far back as the ring reaches.
  parkade_status Park(const std::vector<std::int32_t>& tokens, parkade_park_result* result,
                      bool boundary = true);
  // Expects that all of it is captured; its id.
  std::string ParkAll(const std::vector<std::int32_t>& tokens, bool boundary = true);
  parkade_restore* Lookup(const std::vector<std::int32_t>& prompt);
  // Looks up, restores, checks the rows and finishes.
  parkade_lookup_result Restore(const std::vector<std::int32_t>& prompt);

 private:
  char* RowAt(std::size_t plane, std::uint32_t position);
  // Card that a plane is on.
  int CardOf(std::size_t plane) const;
  // What memory_ says is on the cards; the other way round.
  void Upload();
  void Download();

  const CEngineOptions options_;
  std::vector<std::vector<char>> memory_;       // of the planes; with cards a copy
  std::vector<std::shared_ptr<char>> on_card_;  // none: all is in memory_
  std::vector<std::vector<std::int32_t>> pages_;
  std::vector<parkade_plane_rows> rows_;
  parkade_model* model_ = nullptr;
  parkade_sequence* sequence_ = nullptr;
};

}  // namespace parkade::test
