#include "src/engine/fake/fake_engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/engine/fake/fake_rows.h"
#include "src/engine/fake/plane_memory.h"
#include "src/format/byte_ranges.h"

namespace parkade {
namespace {

// Window rows that stay in memory longer than the window needs, as an engine's batch makes them.
constexpr std::uint32_t kWindowSlackRows = 256;

std::vector<std::uint16_t> LayersOf(const StateLayout& layout) {
  std::set<std::uint16_t> layers;
  for (const Plane& plane : layout.planes) layers.insert(plane.layer);
  return {layers.begin(), layers.end()};
}

// A test asked for what no engine could do; going on would blame the wrong component.
[[noreturn]] void Misuse(const char* what) {
  std::fprintf(stderr, "fake engine: %s\n", what);
  std::abort();
}

std::string PlaneText(const Plane& plane) {
  static constexpr const char* kGroups[] = {"full", "window", "state"};
  return absl::StrCat(kGroups[static_cast<int>(plane.group)], " plane of layer ", plane.layer,
                      " kind ", static_cast<int>(plane.kind));
}

}  // namespace

StateLayout MakeFakeLayout(int layers, std::uint64_t row_bytes, int window_layers,
                           std::uint32_t window_tokens, int state_layers,
                           std::uint64_t state_bytes) {
  StateLayout layout;
  layout.window_tokens = window_layers > 0 ? window_tokens : 0;
  const auto add = [&layout](RowGroup group, PlaneKind kind, int layer, std::uint64_t bytes) {
    Plane plane;
    plane.group = group;
    plane.kind = kind;
    plane.layer = static_cast<std::uint16_t>(layer);
    plane.element_type = 1;
    plane.row_bytes = bytes;
    layout.planes.push_back(plane);
  };
  const auto add_pair = [&](RowGroup group, int layer) {
    add(group, PlaneKind::kKey, layer, row_bytes);
    add(group, PlaneKind::kValue, layer, row_bytes);
  };
  for (int layer = window_layers; layer < layers; ++layer) add_pair(RowGroup::kFull, layer);
  for (int layer = 0; layer < window_layers; ++layer) add_pair(RowGroup::kWindow, layer);
  for (int i = 0; i < state_layers; ++i) {
    add(RowGroup::kState, PlaneKind::kState, layers + i, state_bytes);
  }
  return layout;
}

StageMap MakeFakeStages(const StateLayout& layout, const std::vector<int>& shares) {
  const std::vector<std::uint16_t> layers = LayersOf(layout);
  std::size_t total = 0;
  for (int share : shares) total += static_cast<std::size_t>(share);
  StageMap map;
  std::size_t begin = 0;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    sum += static_cast<std::size_t>(shares[i]);
    const std::size_t end = total == 0 ? 0 : layers.size() * sum / total;
    Stage stage;
    stage.device = absl::StrCat("fake", i);
    stage.layers.assign(layers.begin() + static_cast<std::ptrdiff_t>(begin),
                        layers.begin() + static_cast<std::ptrdiff_t>(end));
    map.stages.push_back(std::move(stage));
    begin = end;
  }
  return map;
}

struct FakeEngine::Impl {
  explicit Impl(FakeEngineOptions given);

  enum class Mode { kIdle, kCapture, kImport };

  // Positions of `group` whose rows are in memory; for kState the one position, or nothing.
  TokenRange Held(RowGroup group) const;
  std::uint32_t WindowNeeds(std::uint32_t tokens) const;
  void Decode(absl::Span<const Token> added);
  void Clear();
  absl::Status Copy(const Stage& stage, const ExtentInfo& extent, TokenRange held,
                    absl::Span<const char> raw);
  absl::Status CheckCoverage(std::uint32_t tokens) const;
  absl::Status VerifyPlane(std::size_t plane, const std::vector<std::uint64_t>& prefixes) const;

  FakeEngineOptions options;
  StateLayout layout;
  StageMap stages;
  bool has_window = false;
  bool has_state = false;
  std::vector<std::uint16_t> placed_layers;  // all layers of `stages`, sorted
  std::vector<std::unique_ptr<fake::PlaneMemory>> memory;
  std::vector<ByteRanges> imported;  // by plane, bytes from position 0

  std::vector<Token> tokens;
  std::uint64_t prefix = 0;        // hash of `tokens`
  std::uint32_t rows = 0;          // memory holds rows of [0, rows)
  std::uint32_t window_begin = 0;  // and window rows of [window_begin, rows)
  Mode mode = Mode::kIdle;
  std::uint32_t capture_tokens = 0;
  std::uint64_t copied_bytes = 0;
};

FakeEngine::Impl::Impl(FakeEngineOptions given) : options(std::move(given)) {
  layout.planes = options.planes;
  layout.window_tokens = options.window_tokens;
  has_window = layout.has_group(RowGroup::kWindow);
  has_state = layout.has_group(RowGroup::kState);
  stages = options.stages.stages.empty() ? MakeFakeStages(layout, {1}) : options.stages;
  for (const Stage& stage : stages.stages) {
    placed_layers.insert(placed_layers.end(), stage.layers.begin(), stage.layers.end());
  }
  std::sort(placed_layers.begin(), placed_layers.end());
  if (placed_layers != LayersOf(layout)) Misuse("stages do not hold each layer exactly once");
  for (const Plane& plane : layout.planes) {
    std::uint32_t capacity = options.max_tokens;
    if (plane.group == RowGroup::kWindow) {
      capacity = std::min(capacity, layout.window_tokens + 1 + kWindowSlackRows);
    } else if (plane.group == RowGroup::kState) {
      capacity = 1;
    }
    memory.push_back(std::make_unique<fake::PlaneMemory>(plane, capacity));
  }
  imported.resize(layout.planes.size());
  prefix = fake::PrefixSeed(options.salt);
}

TokenRange FakeEngine::Impl::Held(RowGroup group) const {
  switch (group) {
    case RowGroup::kFull:
      return {0, rows};
    case RowGroup::kWindow:
      return {window_begin, rows};
    case RowGroup::kState:
      return rows == 0 ? TokenRange{} : TokenRange{rows, rows + 1};
  }
  return {};
}

std::uint32_t FakeEngine::Impl::WindowNeeds(std::uint32_t tokens_wanted) const {
  const std::uint32_t needed = layout.window_tokens + 1;
  return tokens_wanted > needed ? tokens_wanted - needed : 0;
}

void FakeEngine::Impl::Decode(absl::Span<const Token> added) {
  std::vector<std::uint64_t> prefixes;  // prefixes[i] covers token rows + i
  prefixes.reserve(added.size());
  for (const Token token : added) {
    prefix = fake::ExtendPrefix(prefix, token);
    prefixes.push_back(prefix);
  }
  const std::uint32_t first = rows;
  tokens.insert(tokens.end(), added.begin(), added.end());
  rows += static_cast<std::uint32_t>(added.size());
  if (has_window) {
    const std::uint32_t kept = layout.window_tokens + 1 + kWindowSlackRows;
    window_begin = std::max(window_begin, rows > kept ? rows - kept : 0);
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const Plane& plane = layout.planes[i];
    std::uint32_t begin = first;
    if (plane.group == RowGroup::kWindow) begin = std::max(begin, window_begin);
    if (plane.group == RowGroup::kState) begin = rows - 1;
    for (std::uint32_t position = begin; position < rows; ++position) {
      fake::FillRow(fake::RowSeed(plane, prefixes[position - first]), options.cheap_rows,
                    memory[i]->Row(position), plane.row_bytes);
    }
  }
}

void FakeEngine::Impl::Clear() {
  tokens.clear();
  prefix = fake::PrefixSeed(options.salt);
  rows = 0;
  window_begin = 0;
  mode = Mode::kIdle;
  for (ByteRanges& coverage : imported) coverage.Clear();
  // What an import leaves out must not be found there from before. Benchmarks keep their pages:
  // an engine's memory is there from the start and is not faulted in by a restore.
  if (options.cheap_rows) return;
  for (auto& plane : memory) plane->Discard();
}

FakeEngine::FakeEngine(FakeEngineOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
FakeEngine::~FakeEngine() = default;

Identity FakeEngine::identity() const {
  std::uint64_t planes = 0;
  for (const Plane& plane : impl_->layout.planes) {
    planes = fake::Mix(fake::RowSeed(plane, planes), plane.row_bytes);
    planes = fake::Mix(planes, plane.element_type);
  }
  Identity identity;
  identity.Set("weights", absl::StrCat("fake-", impl_->options.salt));
  identity.Set("rows", impl_->options.cheap_rows ? "cheap" : "full");
  identity.Set("window", absl::StrCat(impl_->layout.window_tokens));
  identity.Set("layout", absl::StrCat(absl::Hex(planes, absl::kZeroPad16)));
  return identity;
}

void FakeEngine::Append(absl::Span<const Token> tokens) {
  Impl& impl = *impl_;
  if (impl.mode != Impl::Mode::kIdle) Misuse("Append inside a capture or import");
  if (impl.tokens.size() != impl.rows) Misuse("Append before SetTokens named the restored rows");
  if (impl.rows + tokens.size() > impl.options.max_tokens) Misuse("Append beyond max_tokens");
  if (!tokens.empty()) impl.Decode(tokens);
}

absl::Status FakeEngine::Truncate(std::uint32_t tokens) {
  Impl& impl = *impl_;
  if (tokens == impl.rows) return absl::OkStatus();
  if (tokens > impl.rows) return absl::InvalidArgumentError("fewer rows than that are held");
  if (tokens == 0) {
    impl.Clear();
    return absl::OkStatus();
  }
  if (impl.has_state) return absl::FailedPreconditionError("recurrent state can't go back");
  if (impl.has_window && impl.window_begin > impl.WindowNeeds(tokens)) {
    return absl::FailedPreconditionError("window rows are gone");
  }
  std::vector<Token> kept = impl.tokens;
  kept.resize(std::min<std::size_t>(kept.size(), tokens));
  impl.rows = tokens;
  SetTokens(std::move(kept));
  return absl::OkStatus();
}

const std::vector<Token>& FakeEngine::tokens() const { return impl_->tokens; }

void FakeEngine::SetTokens(std::vector<Token> tokens) {
  impl_->tokens = std::move(tokens);
  impl_->prefix = fake::PrefixSeed(impl_->options.salt);
  for (const Token token : impl_->tokens) {
    impl_->prefix = fake::ExtendPrefix(impl_->prefix, token);
  }
}

absl::Status FakeEngine::Impl::VerifyPlane(std::size_t index,
                                           const std::vector<std::uint64_t>& prefixes) const {
  const Plane& plane = layout.planes[index];
  const TokenRange held = Held(plane.group);
  std::vector<char> wanted(plane.row_bytes);
  for (std::uint32_t position = held.begin; position < held.end; ++position) {
    // A row covers its own token, a state the tokens before its position.
    const std::size_t covered = plane.group == RowGroup::kState ? position : position + 1;
    fake::FillRow(fake::RowSeed(plane, prefixes[covered]), options.cheap_rows, wanted.data(),
                  wanted.size());
    if (std::memcmp(wanted.data(), memory[index]->Row(position), wanted.size()) != 0) {
      return absl::DataLossError(
          absl::StrCat(PlaneText(plane), ": wrong row at position ", position));
    }
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::Verify() const {
  const Impl& impl = *impl_;
  if (impl.mode == Impl::Mode::kImport) return absl::FailedPreconditionError("import not finished");
  if (impl.tokens.size() != impl.rows) {
    return absl::FailedPreconditionError(
        absl::StrCat(impl.rows, " rows for ", impl.tokens.size(), " tokens"));
  }
  if (impl.rows == 0) return absl::OkStatus();
  if (impl.has_window && impl.window_begin > impl.WindowNeeds(impl.rows)) {
    return absl::DataLossError("window rows that the next token needs are missing");
  }
  std::vector<std::uint64_t> prefixes{fake::PrefixSeed(impl.options.salt)};
  prefixes.reserve(impl.rows + 1);
  for (const Token token : impl.tokens) {
    prefixes.push_back(fake::ExtendPrefix(prefixes.back(), token));
  }
  for (std::size_t i = 0; i < impl.layout.planes.size(); ++i) {
    if (absl::Status status = impl.VerifyPlane(i, prefixes); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::uint64_t FakeEngine::copied_bytes() const { return impl_->copied_bytes; }
const StateLayout& FakeEngine::layout() const { return impl_->layout; }
const StageMap& FakeEngine::stages() const { return impl_->stages; }

absl::Status FakeEngine::BeginCapture(std::uint32_t tokens) {
  Impl& impl = *impl_;
  if (impl.mode == Impl::Mode::kImport) return absl::FailedPreconditionError("inside an import");
  if (tokens > impl.rows) {
    return absl::FailedPreconditionError(
        absl::StrCat("memory holds ", impl.rows, " rows, not ", tokens));
  }
  if (impl.has_state && tokens != impl.rows) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state is at ", impl.rows, ", not at ", tokens));
  }
  impl.mode = Impl::Mode::kCapture;
  impl.capture_tokens = tokens;
  return absl::OkStatus();
}

std::uint32_t FakeEngine::WindowBegin() const {
  return std::min(impl_->window_begin, impl_->capture_tokens);
}

absl::Status FakeEngine::Export(const ExtentInfo& extent, char* destination) {
  Impl& impl = *impl_;
  if (impl.mode != Impl::Mode::kCapture) return absl::FailedPreconditionError("no capture begun");
  if (extent.stage >= impl.stages.stages.size()) return absl::InvalidArgumentError("no such stage");
  TokenRange held = impl.Held(extent.group);
  if (extent.group != RowGroup::kState) held.end = std::min(held.end, impl.capture_tokens);
  if (extent.first < held.begin || extent.rows > held.end ||
      extent.first > held.end - extent.rows) {
    return absl::InvalidArgumentError(absl::StrCat("rows [", extent.first, ", +", extent.rows,
                                                   ") are not in memory: it has [", held.begin,
                                                   ", ", held.end, ")"));
  }
  const auto slices = SlicesOf(impl.layout, impl.stages.stages[extent.stage], extent);
  if (slices.empty()) return absl::InvalidArgumentError("extent does not fit the layout");
  for (const PlaneSlice& slice : slices) {
    impl.memory[slice.plane]->CopyOut(extent.first, slice.plane_offset, slice.bytes,
                                      destination + slice.extent_offset);
    impl.copied_bytes += slice.bytes;
  }
  return absl::OkStatus();
}

void FakeEngine::EndCapture() {
  if (impl_->mode == Impl::Mode::kCapture) impl_->mode = Impl::Mode::kIdle;
}

absl::Status FakeEngine::BeginImport(std::uint32_t tokens, std::uint32_t window_begin) {
  Impl& impl = *impl_;
  impl.Clear();
  if (tokens > impl.options.max_tokens) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", tokens, " tokens"));
  }
  if (impl.has_window) {
    if (window_begin > impl.WindowNeeds(tokens)) {
      return absl::InvalidArgumentError("fewer window rows than the next token needs");
    }
    if (tokens - window_begin > layout().window_tokens + 1 + kWindowSlackRows) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no room for ", tokens - window_begin, " window rows"));
    }
  }
  impl.rows = tokens;
  impl.window_begin = impl.has_window ? window_begin : 0;
  impl.mode = Impl::Mode::kImport;
  return absl::OkStatus();
}

absl::Status FakeEngine::Impl::Copy(const Stage& stage, const ExtentInfo& extent, TokenRange held,
                                    absl::Span<const char> raw) {
  const auto slices = SlicesOf(layout, stage, extent);
  if (slices.empty()) return absl::DataLossError("extent does not fit the layout");
  const std::uint32_t last = extent.first + extent.rows;
  const std::uint32_t begin = std::max(extent.first, held.begin);
  const std::uint32_t end = std::min(last, held.end);
  if (begin >= end) return absl::OkStatus();
  for (const PlaneSlice& slice : slices) {
    const std::uint64_t row_bytes = memory[slice.plane]->row_bytes();
    const std::uint64_t from = std::max(slice.plane_offset, (begin - extent.first) * row_bytes);
    const std::uint64_t to =
        std::min(slice.plane_offset + slice.bytes, (end - extent.first) * row_bytes);
    if (from >= to) continue;
    memory[slice.plane]->CopyIn(extent.first, from, to - from,
                                raw.data() + slice.extent_offset + (from - slice.plane_offset));
    const std::uint64_t base = extent.first * row_bytes;
    imported[slice.plane].Add(base + from, base + to);
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::Import(const StageMap& stored, const ExtentInfo& extent,
                                absl::Span<const char> raw) {
  Impl& impl = *impl_;
  if (impl.mode != Impl::Mode::kImport) return absl::FailedPreconditionError("no import begun");
  if (extent.stage >= stored.stages.size()) {
    return absl::InvalidArgumentError("stage is not in the stored map");
  }
  if (raw.size() != extent.raw_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("extent of ", extent.raw_bytes, " bytes came with ", raw.size()));
  }
  if (extent.rows > UINT32_MAX - extent.first) return absl::DataLossError("rows overflow");
  const Stage& stage = stored.stages[extent.stage];
  for (const std::uint16_t layer : stage.layers) {
    if (!std::binary_search(impl.placed_layers.begin(), impl.placed_layers.end(), layer)) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer, " is unknown here"));
    }
  }
  return impl.Copy(stage, extent, impl.Held(extent.group), raw);
}

absl::Status FakeEngine::Impl::CheckCoverage(std::uint32_t wanted_tokens) const {
  if (wanted_tokens == 0) return absl::OkStatus();
  for (std::size_t i = 0; i < layout.planes.size(); ++i) {
    const Plane& plane = layout.planes[i];
    TokenRange wanted = Held(plane.group);
    if (plane.group != RowGroup::kState) wanted.end = wanted_tokens;
    const std::uint64_t end = wanted.end * plane.row_bytes;
    const std::uint64_t gap = imported[i].FirstGap(wanted.begin * plane.row_bytes, end);
    if (gap < end) {
      return absl::DataLossError(absl::StrCat(PlaneText(plane), ": row at position ",
                                              gap / plane.row_bytes, " was not imported"));
    }
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::FinishImport(std::uint32_t tokens) {
  Impl& impl = *impl_;
  absl::Status status;
  if (impl.mode != Impl::Mode::kImport) {
    status = absl::FailedPreconditionError("no import begun");
  } else if (tokens > impl.rows) {
    status = absl::InvalidArgumentError("more tokens than were placed");
  } else if (tokens != 0 && tokens != impl.rows && (impl.has_window || impl.has_state)) {
    status = absl::InvalidArgumentError("window or state is valid at the end only");
  } else {
    status = impl.CheckCoverage(tokens);
  }
  if (!status.ok() || tokens == 0) {
    impl.Clear();
    return status;
  }
  impl.rows = tokens;
  impl.mode = Impl::Mode::kIdle;
  for (ByteRanges& coverage : impl.imported) coverage.Clear();
  return absl::OkStatus();
}

void FakeEngine::Clear() { impl_->Clear(); }

}  // namespace parkade
