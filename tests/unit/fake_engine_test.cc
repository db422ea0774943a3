#include "src/engine/fake/fake_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace parkade {
namespace {

struct Piece {
  ExtentInfo info;
  std::string raw;
};

// What a capture took, with the stage map it was cut for.
struct Capture {
  StageMap stages;
  std::uint32_t tokens = 0;
  std::uint32_t window_begin = 0;
  std::vector<Piece> pieces;
};

std::vector<Token> SomeTokens(std::uint32_t count, Token first = 7) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

FakeEngineOptions OptionsFor(const StateLayout& layout, const std::vector<int>& shares) {
  FakeEngineOptions options;
  options.planes = layout.planes;
  options.window_tokens = layout.window_tokens;
  options.stages = MakeFakeStages(layout, shares);
  options.max_tokens = 4096;
  return options;
}

void ExportGroup(FakeEngine& engine, RowGroup group, TokenRange range, Capture& capture) {
  for (const ExtentInfo& info : CutIntoExtents(engine.layout(), engine.stages(), group, range)) {
    Piece piece{info, std::string(info.raw_bytes, '\0')};
    ASSERT_TRUE(engine.Export(info, piece.raw.data()).ok());
    capture.pieces.push_back(std::move(piece));
  }
}

Capture CaptureAll(FakeEngine& engine) {
  Capture capture;
  capture.stages = engine.stages();
  capture.tokens = static_cast<std::uint32_t>(engine.tokens().size());
  EXPECT_TRUE(engine.BeginCapture(capture.tokens).ok());
  capture.window_begin = engine.WindowBegin();
  ExportGroup(engine, RowGroup::kFull, {0, capture.tokens}, capture);
  ExportGroup(engine, RowGroup::kWindow, {capture.window_begin, capture.tokens}, capture);
  ExportGroup(engine, RowGroup::kState, {capture.tokens, capture.tokens + 1}, capture);
  engine.EndCapture();
  return capture;
}

absl::Status ImportPieces(FakeEngine& engine, const Capture& capture) {
  for (const Piece& piece : capture.pieces) {
    absl::Status status = engine.Import(capture.stages, piece.info, piece.raw);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Restore(FakeEngine& engine, const Capture& capture, std::vector<Token> tokens) {
  absl::Status status = engine.BeginImport(capture.tokens, capture.window_begin);
  if (!status.ok()) return status;
  if (status = ImportPieces(engine, capture); !status.ok()) return status;
  if (status = engine.FinishImport(capture.tokens); !status.ok()) return status;
  engine.SetTokens(std::move(tokens));
  return engine.Verify();
}

// Full, window and recurrent layers; the state row is longer than an extent, so it has parts.
StateLayout MixedLayout() { return MakeFakeLayout(6, 96, 3, 40, 2, kExtentBytes + 1000); }

TEST(FakeLayout, IsInCanonicalOrder) {
  const StateLayout layout = MakeFakeLayout(3, 64, 1, 16, 1, 128);
  ASSERT_EQ(layout.planes.size(), 7u);
  EXPECT_TRUE(std::is_sorted(
      layout.planes.begin(), layout.planes.end(), [](const Plane& a, const Plane& b) {
        return std::tuple(a.group, a.layer, a.kind) < std::tuple(b.group, b.layer, b.kind);
      }));
  EXPECT_EQ(layout.planes[0].layer, 1);
  EXPECT_EQ(layout.planes[4].group, RowGroup::kWindow);
  EXPECT_EQ(layout.planes[4].layer, 0);
  EXPECT_EQ(layout.planes[6].layer, 3);
  EXPECT_EQ(layout.planes[6].row_bytes, 128u);
  EXPECT_EQ(layout.window_tokens, 16u);
}

TEST(FakeLayout, SharesSplitLayers) {
  const StateLayout layout = MakeFakeLayout(8, 64, 0, 0, 0, 0);
  const StageMap map = MakeFakeStages(layout, {3, 1});
  ASSERT_EQ(map.stages.size(), 2u);
  EXPECT_EQ(map.stages[0].layers, (std::vector<std::uint16_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(map.stages[1].layers, (std::vector<std::uint16_t>{6, 7}));
}

TEST(FakeEngine, RestoresAcrossSplits) {
  const std::vector<std::vector<int>> splits{{1}, {1, 1}, {3, 1}, {2, 1, 1}};
  const std::vector<Token> tokens = SomeTokens(600);
  FakeEngine first(OptionsFor(MixedLayout(), splits[0]));
  first.Append(tokens);
  ASSERT_EQ(first.Verify(), absl::OkStatus());
  Capture capture = CaptureAll(first);
  for (std::size_t i = 1; i <= splits.size(); ++i) {
    FakeEngine next(OptionsFor(MixedLayout(), splits[i % splits.size()]));
    ASSERT_EQ(Restore(next, capture, tokens), absl::OkStatus()) << "split " << i;
    capture = CaptureAll(next);
    // It goes on as the first engine would have.
    next.Append(SomeTokens(10, 9000));
    EXPECT_EQ(next.Verify(), absl::OkStatus());
  }
}

TEST(FakeEngine, PiecesMayComeInAnyOrderAndTwice) {
  const std::vector<Token> tokens = SomeTokens(700);
  FakeEngine source(OptionsFor(MixedLayout(), {1, 1}));
  source.Append(tokens);
  Capture capture = CaptureAll(source);
  capture.pieces.insert(capture.pieces.end(), capture.pieces.begin(), capture.pieces.begin() + 2);
  std::reverse(capture.pieces.begin(), capture.pieces.end());
  FakeEngine target(OptionsFor(MixedLayout(), {1}));
  EXPECT_EQ(Restore(target, capture, tokens), absl::OkStatus());
}

TEST(FakeEngine, RowsOfOneRowAreThoseOfManyAppends) {
  FakeEngine at_once(OptionsFor(MixedLayout(), {1}));
  FakeEngine in_steps(OptionsFor(MixedLayout(), {1}));
  const std::vector<Token> tokens = SomeTokens(520);
  at_once.Append(tokens);
  for (std::size_t i = 0; i < tokens.size(); i += 13) {
    in_steps.Append(absl::MakeConstSpan(tokens).subspan(i, 13));
  }
  const Capture a = CaptureAll(at_once);
  const Capture b = CaptureAll(in_steps);
  ASSERT_EQ(a.pieces.size(), b.pieces.size());
  for (std::size_t i = 0; i < a.pieces.size(); ++i) EXPECT_EQ(a.pieces[i].raw, b.pieces[i].raw);
}

TEST(FakeEngine, RowsDependOnSaltPlaneAndEveryTokenBefore) {
  const StateLayout layout = MakeFakeLayout(1, 64, 0, 0, 0, 0);
  const auto rows_of = [&](std::uint64_t salt, std::vector<Token> tokens) {
    FakeEngineOptions options = OptionsFor(layout, {1});
    options.salt = salt;
    FakeEngine engine(options);
    engine.Append(tokens);
    return CaptureAll(engine).pieces.at(0).raw;
  };
  const std::string base = rows_of(1, {1, 2, 3});
  ASSERT_EQ(base.size(), 3u * 128);
  EXPECT_EQ(base, rows_of(1, {1, 2, 3}));
  EXPECT_NE(base.substr(0, 64), rows_of(2, {1, 2, 3}).substr(0, 64));
  EXPECT_NE(base.substr(0, 64), base.substr(192, 64));  // K and V
  const std::string other = rows_of(1, {1, 5, 3});
  EXPECT_EQ(base.substr(0, 64), other.substr(0, 64));
  EXPECT_NE(base.substr(64, 64), other.substr(64, 64));
  EXPECT_NE(base.substr(128, 64), other.substr(128, 64));
}

TEST(FakeEngine, IdentityNamesModelAndLayoutButNotTheSplit) {
  const StateLayout layout = MixedLayout();
  FakeEngineOptions options = OptionsFor(layout, {1});
  const Identity base = FakeEngine(options).identity();
  EXPECT_EQ(base, FakeEngine(OptionsFor(layout, {1, 1})).identity());
  options.salt = 2;
  EXPECT_EQ(FirstDifference(base, FakeEngine(options).identity()), "weights");
  const StateLayout wider = MakeFakeLayout(6, 97, 3, 40, 2, kExtentBytes + 1000);
  EXPECT_EQ(FirstDifference(base, FakeEngine(OptionsFor(wider, {1})).identity()), "layout");
}

TEST(FakeEngine, WindowSlidesAndOldRowsAreGone) {
  const StateLayout layout = MakeFakeLayout(4, 64, 2, 50, 0, 0);
  FakeEngine engine(OptionsFor(layout, {1}));
  engine.Append(SomeTokens(100));
  ASSERT_EQ(engine.BeginCapture(100), absl::OkStatus());
  EXPECT_EQ(engine.WindowBegin(), 0u);
  engine.EndCapture();
  engine.Append(SomeTokens(900, 5000));
  ASSERT_EQ(engine.Verify(), absl::OkStatus());
  ASSERT_EQ(engine.BeginCapture(1000), absl::OkStatus());
  const std::uint32_t begin = engine.WindowBegin();
  EXPECT_GT(begin, 0u);
  EXPECT_LE(begin, 1000u - 51);
  std::vector<ExtentInfo> gone =
      CutIntoExtents(layout, engine.stages(), RowGroup::kWindow, {begin - 1, begin + 3});
  std::string raw(gone.at(0).raw_bytes, '\0');
  EXPECT_EQ(engine.Export(gone[0], raw.data()).code(), absl::StatusCode::kInvalidArgument);
  engine.EndCapture();
}

TEST(FakeEngine, WindowImportNeedsWindowPlusOneRows) {
  const StateLayout layout = MakeFakeLayout(4, 64, 2, 50, 0, 0);
  FakeEngine engine(OptionsFor(layout, {1}));
  EXPECT_EQ(engine.BeginImport(1000, 949), absl::OkStatus());
  EXPECT_EQ(engine.BeginImport(1000, 950).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.BeginImport(1000, 0).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.BeginImport(5000, 4900).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.BeginCapture(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FakeEngine, RowsBelowTheWindowDoNotWrapOntoNewerOnes) {
  const StateLayout layout = MakeFakeLayout(4, 64, 2, 50, 0, 0);
  FakeEngine source(OptionsFor(layout, {1}));
  source.Append(SomeTokens(300));
  Capture older = CaptureAll(source);
  source.Append(SomeTokens(300, 5000));
  Capture capture = CaptureAll(source);
  ASSERT_EQ(capture.window_begin, 293u);  // as many as there is room for
  // The older capture's rows 256..299 come last; those below 293 have no place any more.
  for (Piece& piece : older.pieces) {
    if (piece.info.group == RowGroup::kWindow) capture.pieces.push_back(std::move(piece));
  }
  FakeEngine target(OptionsFor(layout, {1, 1}));
  EXPECT_EQ(Restore(target, capture, source.tokens()), absl::OkStatus());
}

TEST(FakeEngine, RestoresShorterThanStored) {
  const std::vector<Token> tokens = SomeTokens(600);
  FakeEngine source(OptionsFor(MakeFakeLayout(4, 64, 0, 0, 0, 0), {1, 1}));
  source.Append(tokens);
  const Capture capture = CaptureAll(source);
  FakeEngine target(OptionsFor(source.layout(), {1}));
  // Room for 300 only: extents reach over it and are clipped.
  ASSERT_EQ(target.BeginImport(300, 0), absl::OkStatus());
  ASSERT_EQ(ImportPieces(target, capture), absl::OkStatus());
  ASSERT_EQ(target.FinishImport(270), absl::OkStatus());
  target.SetTokens({tokens.begin(), tokens.begin() + 270});
  EXPECT_EQ(target.Verify(), absl::OkStatus());
  EXPECT_EQ(target.BeginCapture(271).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(target.BeginCapture(270), absl::OkStatus());
}

TEST(FakeEngine, ShorterFinishIsRefusedWithWindowOrState) {
  for (const StateLayout& layout :
       {MakeFakeLayout(2, 64, 1, 50, 0, 0), MakeFakeLayout(2, 64, 0, 0, 1, 64)}) {
    FakeEngine source(OptionsFor(layout, {1}));
    source.Append(SomeTokens(60));
    const Capture capture = CaptureAll(source);
    FakeEngine target(OptionsFor(layout, {1}));
    ASSERT_EQ(target.BeginImport(60, 0), absl::OkStatus());
    ASSERT_EQ(ImportPieces(target, capture), absl::OkStatus());
    EXPECT_EQ(target.FinishImport(59).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(target.BeginCapture(1).code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(FakeEngine, EveryMissingPieceIsFound) {
  const std::vector<Token> tokens = SomeTokens(600);
  FakeEngine source(OptionsFor(MixedLayout(), {1, 1}));
  source.Append(tokens);
  const Capture whole = CaptureAll(source);
  FakeEngine target(OptionsFor(MixedLayout(), {1}));
  for (std::size_t i = 0; i < whole.pieces.size(); ++i) {
    Capture part = whole;
    part.pieces.erase(part.pieces.begin() + static_cast<std::ptrdiff_t>(i));
    const absl::Status status = Restore(target, part, tokens);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "piece " << i << ": " << status;
    EXPECT_TRUE(target.tokens().empty());
    EXPECT_EQ(target.BeginCapture(1).code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(FakeEngine, OneWrongByteIsNamed) {
  const std::vector<Token> tokens = SomeTokens(300);
  FakeEngine source(OptionsFor(MakeFakeLayout(2, 64, 0, 0, 0, 0), {1}));
  source.Append(tokens);
  Capture capture = CaptureAll(source);
  // Second extent: rows 256..299 of four planes; plane 2 is layer 1's K. Row 256 + 3, byte 5.
  capture.pieces.at(1).raw.at(2 * 44 * 64 + 3 * 64 + 5) ^= 1;
  FakeEngine target(OptionsFor(source.layout(), {1, 1}));
  const absl::Status status = Restore(target, capture, tokens);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "full plane of layer 1 kind 0: wrong row at position 259");
}

TEST(FakeEngine, WrongTokensAreFound) {
  std::vector<Token> tokens = SomeTokens(300);
  FakeEngine source(OptionsFor(MixedLayout(), {1}));
  source.Append(tokens);
  const Capture capture = CaptureAll(source);
  tokens[200] = 1;
  FakeEngine target(OptionsFor(MixedLayout(), {1}));
  const absl::Status status = Restore(target, capture, tokens);
  EXPECT_EQ(status.message(), "full plane of layer 3 kind 0: wrong row at position 200");
  target.SetTokens(SomeTokens(299));
  EXPECT_EQ(target.Verify().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FakeEngine, ForeignExtentsAreRefused) {
  FakeEngine source(OptionsFor(MakeFakeLayout(2, 64, 0, 0, 0, 0), {1}));
  source.Append(SomeTokens(10));
  Capture capture = CaptureAll(source);
  const Piece piece = capture.pieces.at(0);
  FakeEngine target(OptionsFor(source.layout(), {1}));
  EXPECT_EQ(target.Import(capture.stages, piece.info, piece.raw).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(target.BeginImport(10, 0), absl::OkStatus());
  EXPECT_EQ(target.Import(capture.stages, piece.info, piece.raw.substr(1)).code(),
            absl::StatusCode::kInvalidArgument);
  StageMap unknown = capture.stages;
  unknown.stages[0].layers.push_back(9);
  EXPECT_EQ(target.Import(unknown, piece.info, piece.raw).message(), "layer 9 is unknown here");
  EXPECT_EQ(target.Import(StageMap{}, piece.info, piece.raw).code(),
            absl::StatusCode::kInvalidArgument);
  Piece wide = piece;
  wide.info.rows = 11;  // does not fit its own raw_bytes
  EXPECT_EQ(target.Import(capture.stages, wide.info, wide.raw).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(target.FinishImport(10).code(), absl::StatusCode::kDataLoss);
}

TEST(FakeEngine, TruncateFollowsWhatMemoryAllows) {
  FakeEngine plain(OptionsFor(MakeFakeLayout(2, 64, 0, 0, 0, 0), {1}));
  plain.Append(SomeTokens(500));
  EXPECT_EQ(plain.Truncate(501).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(plain.Truncate(100), absl::OkStatus());
  EXPECT_EQ(plain.tokens(), SomeTokens(100));
  plain.Append(SomeTokens(3, 77));
  EXPECT_EQ(plain.Verify(), absl::OkStatus());

  FakeEngine window(OptionsFor(MakeFakeLayout(2, 64, 1, 50, 0, 0), {1}));
  window.Append(SomeTokens(1000));
  EXPECT_EQ(window.Truncate(900), absl::OkStatus());
  window.Append(SomeTokens(3, 77));
  EXPECT_EQ(window.Verify(), absl::OkStatus());
  EXPECT_EQ(window.Truncate(600).code(), absl::StatusCode::kFailedPrecondition);

  FakeEngine state(OptionsFor(MakeFakeLayout(2, 64, 0, 0, 1, 64), {1}));
  state.Append(SomeTokens(10));
  EXPECT_EQ(state.Truncate(9).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(state.BeginCapture(9).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(state.Truncate(0), absl::OkStatus());
  EXPECT_TRUE(state.tokens().empty());
}

TEST(FakeEngine, CheapRowsRoundTripAndCountCopies) {
  FakeEngineOptions options = OptionsFor(MakeFakeLayout(3, 100, 1, 20, 1, 130), {1, 1});
  options.cheap_rows = true;
  FakeEngine source(options);
  const std::vector<Token> tokens = SomeTokens(80);
  source.Append(tokens);
  const Capture capture = CaptureAll(source);
  std::uint64_t bytes = 0;
  for (const Piece& piece : capture.pieces) bytes += piece.raw.size();
  EXPECT_EQ(bytes, 80u * 600 + 130);
  EXPECT_EQ(source.copied_bytes(), bytes);
  options.stages = MakeFakeStages(source.layout(), {1});
  FakeEngine target(options);
  EXPECT_EQ(Restore(target, capture, tokens), absl::OkStatus());
  EXPECT_EQ(target.copied_bytes(), 0u);
  FakeEngineOptions full = options;
  full.cheap_rows = false;
  EXPECT_EQ(FirstDifference(FakeEngine(full).identity(), target.identity()), "rows");
}

TEST(FakeEngine, UntouchedCapacityCostsNothing) {
  FakeEngineOptions options = OptionsFor(MakeFakeLayout(32, 4096, 0, 0, 0, 0), {1});
  options.max_tokens = 1u << 20;  // 256 GiB of address space
  FakeEngine engine(options);
  engine.Append(SomeTokens(5));
  EXPECT_EQ(engine.Verify(), absl::OkStatus());
}

}  // namespace
}  // namespace parkade
