// A deterministic engine without a model: every row is a hash of (identity salt, tokens up to and
// including it, plane), so any mix-up of rows shows. For tests and benchmarks of any size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parkade/engine.h"
#include "parkade/identity.h"

namespace parkade {

struct FakeEngineOptions {
  std::uint64_t salt = 1;     // a different model
  std::vector<Plane> planes;  // canonical order; see MakeFakeLayout
  std::uint32_t window_tokens = 0;
  StageMap stages;
  std::uint32_t max_tokens = 1u << 20;  // capacity of a sequence
  // Rows cheaply derived (one 8-byte hash repeated) instead of fully random: for benchmarks.
  bool cheap_rows = false;
};

// `layers` layers with K and V of row_bytes each; the first `window_layers` of them are window
// layers; `state_layers` more layers carry recurrent state of state_bytes each.
StateLayout MakeFakeLayout(int layers, std::uint64_t row_bytes, int window_layers,
                           std::uint32_t window_tokens, int state_layers,
                           std::uint64_t state_bytes);
// Splits all layers into stages with the given shares, e.g. {1, 1} or {3, 1}.
StageMap MakeFakeStages(const StateLayout& layout, const std::vector<int>& shares);

class FakeEngine : public EngineSequence {
 public:
  explicit FakeEngine(FakeEngineOptions options);
  ~FakeEngine() override;

  Identity identity() const;

  // "Decodes": appends tokens; rows come into being, the window slides, the state moves.
  void Append(absl::Span<const Token> tokens);
  // Drops tokens at the end (like a sequence removal); fails where state or window forbids it.
  absl::Status Truncate(std::uint32_t tokens);
  const std::vector<Token>& tokens() const;
  // After a restore the caller says which tokens the rows stand for.
  void SetTokens(std::vector<Token> tokens);
  // Recomputes what every row must be and compares; the first wrong row is named.
  absl::Status Verify() const;
  std::uint64_t copied_bytes() const;  // by Export, since construction

  const StateLayout& layout() const override;
  const StageMap& stages() const override;
  absl::Status BeginCapture(std::uint32_t tokens) override;
  std::uint32_t WindowBegin() const override;
  absl::Status Export(const ExtentInfo& extent, char* destination) override;
  void EndCapture() override;
  absl::Status BeginImport(std::uint32_t tokens, std::uint32_t window_begin) override;
  absl::Status Import(const StageMap& stored, const ExtentInfo& extent,
                      absl::Span<const char> raw) override;
  absl::Status FinishImport(std::uint32_t tokens) override;
  void Clear() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace parkade
