#include "tests/unit/capi_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace parkade::test {
namespace {

constexpr std::uint32_t kPageRows = 16;
constexpr std::uint64_t kSeed = 14695981039346656037u;

std::uint64_t Extend(std::uint64_t prefix, std::int32_t token) {
  return (prefix ^ static_cast<std::uint32_t>(token)) * 1099511628211u;
}

std::vector<char> RowOf(const parkade_plane& plane, std::uint64_t prefix) {
  std::uint64_t value = prefix ^ (plane.layer * 977u + plane.kind * 31u + 1);
  std::vector<char> row(plane.row_bytes);
  for (char& byte : row) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(value >> 56);
  }
  return row;
}

}  // namespace

CModel MakeCModel(int full, int window, int state) {
  CModel model;
  model.window_tokens = window > 0 ? 100 : 0;
  const auto add = [&model](parkade_group group, parkade_kind kind, int layer,
                            std::uint64_t bytes) {
    model.planes.push_back({group, kind, static_cast<std::uint16_t>(layer), 1, bytes});
  };
  for (int layer = 0; layer < full + window + state; ++layer) {
    if (layer >= full + window) {
      add(PARKADE_STATE, PARKADE_RECURRENT, layer, 5000);
      continue;
    }
    const parkade_group group = layer < full ? PARKADE_FULL : PARKADE_WINDOW;
    add(group, PARKADE_KEY, layer, 64);
    add(group, PARKADE_VALUE, layer, 48);
  }
  return model;
}

std::vector<std::int32_t> CTokens(std::uint32_t seed, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  std::uint32_t value = seed * 2654435761u + 12345;
  for (std::int32_t& token : tokens) {
    value = value * 1664525u + 1013904223u;
    token = static_cast<std::int32_t>(value >> 8);
  }
  return tokens;
}

CEngine::CEngine(parkade_cache* cache, CEngineOptions options) : options_(std::move(options)) {
  const std::vector<parkade_plane>& planes = options_.model.planes;
  memory_.resize(planes.size());
  pages_.resize(planes.size());
  rows_.resize(planes.size());
  std::set<std::uint16_t> all;
  for (std::size_t i = 0; i < planes.size(); ++i) {
    all.insert(planes[i].layer);
    parkade_plane_rows& rows = rows_[i];
    rows = {};
    rows.rows = planes[i].group == PARKADE_STATE ? 1 : options_.rows;
    if (planes[i].group == PARKADE_WINDOW && options_.window_rows > 0) {
      rows.rows = options_.window_rows;
    }
    memory_[i].resize(rows.rows * planes[i].row_bytes);
    rows.base = memory_[i].data();
    if (options_.side != nullptr) {
      on_card_.push_back(options_.side->DeviceMemory(memory_[i].size(), CardOf(i)));
      rows.base = on_card_.back().get();
    }
    if (!options_.paged.contains(i)) continue;
    pages_[i].resize(rows.rows / kPageRows);
    std::iota(pages_[i].rbegin(), pages_[i].rend(), 0);
    rows.page_rows = kPageRows;
    rows.pages = pages_[i].data();
    rows.page_count = pages_[i].size();
  }
  const parkade_field field = {"weights", options_.model.weights.c_str()};
  parkade_model_options model = {};
  model.struct_size = sizeof(model);
  model.fields = &field;
  model.field_count = 1;
  model.planes = planes.data();
  model.plane_count = planes.size();
  model.window_tokens = options_.model.window_tokens;
  EXPECT_EQ(parkade_model_open(cache, &model, &model_), PARKADE_OK) << parkade_last_error();
  std::vector<parkade_stage> stages;
  const std::vector<std::uint16_t> every(all.begin(), all.end());
  for (const std::vector<std::uint16_t>& layers : options_.stages) {
    const std::vector<std::uint16_t>& own = layers.empty() ? every : layers;
    parkade_stage stage = {};
    stage.layers = own.data();
    stage.layer_count = own.size();
    if (options_.side != nullptr) {
      stage.device = PARKADE_CUDA;
      stage.ordinal = options_.cards[stages.size()];
    }
    stages.push_back(stage);
  }
  parkade_sequence_options sequence = {};
  sequence.struct_size = sizeof(sequence);
  sequence.stages = stages.data();
  sequence.stage_count = stages.size();
  sequence.planes = rows_.data();
  sequence.plane_count = rows_.size();
  EXPECT_EQ(parkade_sequence_open(model_, &sequence, &sequence_), PARKADE_OK)
      << parkade_last_error();
}

CEngine::~CEngine() {
  parkade_sequence_close(sequence_);
  parkade_model_close(model_);
}

int CEngine::CardOf(std::size_t plane) const {
  const std::uint16_t layer = options_.model.planes[plane].layer;
  for (std::size_t stage = 0; stage < options_.stages.size(); ++stage) {
    const std::vector<std::uint16_t>& own = options_.stages[stage];
    if (own.empty() || std::find(own.begin(), own.end(), layer) != own.end()) {
      return options_.cards[stage];
    }
  }
  return 0;
}

void CEngine::Upload() {
  for (std::size_t plane = 0; plane < on_card_.size(); ++plane) {
    options_.side->Write(on_card_[plane].get(), {memory_[plane].data(), memory_[plane].size()});
  }
}

void CEngine::Download() {
  for (std::size_t plane = 0; plane < on_card_.size(); ++plane) {
    const std::string bytes = options_.side->Read(on_card_[plane].get(), memory_[plane].size());
    memory_[plane].assign(bytes.begin(), bytes.end());
  }
}

char* CEngine::RowAt(std::size_t plane, std::uint32_t position) {
  std::uint32_t row = position % rows_[plane].rows;
  if (!pages_[plane].empty()) {
    const std::int32_t page = pages_[plane][row / kPageRows];
    if (page < 0) return nullptr;
    row = static_cast<std::uint32_t>(page) * kPageRows + row % kPageRows;
  }
  return memory_[plane].data() + row * options_.model.planes[plane].row_bytes;
}

void CEngine::Decode(const std::vector<std::int32_t>& tokens) {
  std::uint64_t prefix = kSeed;
  for (std::uint32_t at = 0; at < tokens.size(); ++at) {
    prefix = Extend(prefix, tokens[at]);
    for (std::size_t plane = 0; plane < memory_.size(); ++plane) {
      const std::vector<char> row = RowOf(options_.model.planes[plane], prefix);
      char* place = RowAt(plane, at);
      if (place != nullptr) std::memcpy(place, row.data(), row.size());
    }
  }
  Upload();
}

void CEngine::Wipe() {
  for (std::vector<char>& plane : memory_) std::fill(plane.begin(), plane.end(), '\xee');
  Upload();
}

std::string CEngine::Wrong(const std::vector<std::int32_t>& tokens, std::uint32_t count,
                           std::uint32_t window_begin) {
  Download();
  const std::uint32_t need = options_.model.window_tokens + 1;
  if (options_.model.window_tokens > 0 && window_begin > (count > need ? count - need : 0)) {
    return "the window begins at " + std::to_string(window_begin);
  }
  std::uint64_t prefix = kSeed;
  for (std::uint32_t at = 0; at < count; ++at) {
    prefix = Extend(prefix, tokens[at]);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const parkade_plane& plane = options_.model.planes[i];
      if (plane.group == PARKADE_WINDOW && at < window_begin) continue;
      if (plane.group == PARKADE_STATE && at + 1 < count) continue;
      const std::vector<char> row = RowOf(plane, prefix);
      const char* place = RowAt(i, at);
      if (place == nullptr || std::memcmp(place, row.data(), row.size()) != 0) {
        return "plane " + std::to_string(i) + ", position " + std::to_string(at);
      }
    }
  }
  return "";
}

parkade_status CEngine::SetPlanes() {
  return parkade_sequence_set_planes(sequence_, rows_.data(), rows_.size());
}

parkade_status CEngine::Park(const std::vector<std::int32_t>& tokens, parkade_park_result* result,
                             bool boundary) {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  parkade_park_options options = {};
  options.struct_size = sizeof(options);
  options.tokens = tokens.data();
  options.token_count = count;
  options.boundary = boundary;
  const std::uint32_t ring = options_.window_rows == 0 ? options_.rows : options_.window_rows;
  options.window_begin = count > ring ? count - ring : 0;
  *result = {};
  result->struct_size = sizeof(*result);
  return parkade_park(model_, sequence_, &options, result);
}

std::string CEngine::ParkAll(const std::vector<std::int32_t>& tokens, bool boundary) {
  parkade_park_result result;
  EXPECT_EQ(Park(tokens, &result, boundary), PARKADE_OK) << parkade_last_error();
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.captured_tokens, tokens.size());
  EXPECT_EQ(std::strlen(result.conversation), PARKADE_ID_CHARS - 1u);
  return result.conversation;
}

parkade_restore* CEngine::Lookup(const std::vector<std::int32_t>& prompt) {
  parkade_lookup_options options = {};
  options.struct_size = sizeof(options);
  options.tokens = prompt.data();
  options.token_count = prompt.size();
  parkade_restore* restore = nullptr;
  EXPECT_EQ(parkade_lookup(model_, &options, &restore), PARKADE_OK) << parkade_last_error();
  return restore;
}

parkade_lookup_result CEngine::Restore(const std::vector<std::int32_t>& prompt) {
  parkade_restore* restore = Lookup(prompt);
  std::uint32_t tokens = 0;
  EXPECT_EQ(parkade_restore_run(restore, sequence_, 30000, &tokens), PARKADE_OK)
      << parkade_last_error();
  parkade_restore_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_EQ(parkade_restore_plan(restore, 0, &info), PARKADE_OK) << parkade_last_error();
  EXPECT_EQ(info.tokens, tokens);
  if (tokens > 0) {
    EXPECT_EQ(Wrong(prompt, tokens, info.window_begin), "");
  }
  parkade_lookup_result result = {};
  result.struct_size = sizeof(result);
  EXPECT_EQ(parkade_restore_finish(restore, tokens, &result), PARKADE_OK) << parkade_last_error();
  EXPECT_EQ(result.reused_tokens, tokens);
  return result;
}

}  // namespace parkade::test
