// The CUDA copier over a runtime without a card: order, buffers, errors. What is queued runs as
// late as it may, in a random order; stage_copier_test.cc is its suite.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/device/cuda_copier.h"
#include "tests/support/cuda_side.h"
#include "tests/support/host_cuda.h"

namespace parkade::test {
namespace {

// Calls with page-locked memory and without, in large pieces and in small ones.
class Calls {
 public:
  explicit Calls(CopierSide& side)
      : memory_(side.DeviceMemory(2 * kBytes, 0)),
        pinned_(side.HostMemory(kBytes)),
        sources_{side.HostMemory(kBytes), side.HostMemory(kBytes)},
        ordinary_(kBytes) {}

  // The first error.
  absl::Status Run(StageCopier& copier) {
    const PlaneRows flat{memory_.get(), kBytes / 1024, 1024, 1024, 0, 0, {}};
    const PlaneRows apart{memory_.get(), kBytes / 1024, 1024, 2048, 0, 0, {}};
    absl::Status first;
    for (const PlaneRows* rows : {&flat, &apart}) {
      const PlaneRun run{rows, 0, kBytes, 0};
      std::shared_ptr<char> source = std::move(sources_[rows == &apart]);
      owners_.push_back(source);
      char* data = source.get();
      first.Update(copier.CopyIn({run}, data, std::move(source)));
      first.Update(copier.CopyIn({run}, ordinary_.data(), nullptr));
      first.Update(copier.CopyOut({run}, pinned_.get()));
      first.Update(copier.CopyOut({run}, ordinary_.data()));
    }
    first.Update(copier.Wait());
    return first;
  }
  void Overwrite() {
    std::fill_n(pinned_.get(), kBytes, 'x');
    std::fill(ordinary_.begin(), ordinary_.end(), 'x');
  }
  bool Untouched() const {
    const auto same = [](char byte) { return byte == 'x'; };
    return std::all_of(pinned_.get(), pinned_.get() + kBytes, same) &&
           std::all_of(ordinary_.begin(), ordinary_.end(), same);
  }
  bool owners_gone() const {
    return std::all_of(owners_.begin(), owners_.end(),
                       [](const std::weak_ptr<char>& owner) { return owner.expired(); });
  }

 private:
  static constexpr std::uint32_t kBytes = 5u << 20;
  const std::shared_ptr<char> memory_;
  const std::shared_ptr<char> pinned_;
  std::shared_ptr<char> sources_[2];
  std::vector<char> ordinary_;
  std::vector<std::weak_ptr<char>> owners_;
};

TEST(HostCudaCopier, AnErrorAtAnyCallEndsItAndKeepsNothing) {
  std::uint64_t at = 0;
  for (bool failed = true; failed; ++at) {
    SCOPED_TRACE(at);
    host_cuda::Reset(1, at);
    {
      auto side = MakeCudaSide();
      auto copier = NewCudaCopier(0, nullptr);
      ASSERT_TRUE(copier.ok());
      Calls calls(*side);
      host_cuda::FailAfter(at);
      const absl::Status first = calls.Run(**copier);
      failed = !first.ok();
      EXPECT_TRUE(calls.owners_gone());
      if (failed) {
        EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable) << first;
        EXPECT_EQ((*copier)->Wait(), first);
        EXPECT_EQ((*copier)->CopyOut({}, nullptr), first);
      }
    }
    EXPECT_EQ(host_cuda::live(), 0u);
  }
  EXPECT_GT(at, 100u);
}

TEST(HostCudaCopier, WithoutACardItSaysSo) {
  host_cuda::Reset(0, 1);
  const auto none = NewCudaCopier(0, nullptr);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(none.status().message().find("no CUDA-capable device"), std::string::npos);
  host_cuda::Reset(2, 1);
  for (const int device : {-1, 2}) {
    const auto missing = NewCudaCopier(device, nullptr);
    EXPECT_EQ(missing.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(missing.status().message().find("there are 2"), std::string::npos);
  }
  // Half of what it needs is given back.
  host_cuda::Reset(1, 1);
  ASSERT_TRUE(NewCudaCopier(0, nullptr).ok());
  // Of its calls the last three are those that wait for it to end.
  const std::uint64_t calls = host_cuda::calls() - 3;
  ASSERT_GT(calls, 20u);
  for (std::uint64_t at = 0; at < calls; ++at) {
    host_cuda::Reset(1, 1);
    host_cuda::FailAfter(at);
    EXPECT_FALSE(NewCudaCopier(0, nullptr).ok()) << at;
    EXPECT_EQ(host_cuda::live(), 0u) << at;
  }
}

// An error that does not stop the card: what was queued before it goes on, so it is waited for.
TEST(HostCudaCopier, NothingIsUnderWayAfterAnErrorThatTheCardOutlives) {
  std::uint64_t failures = 0;
  for (std::uint64_t at = 0; at < 60; ++at) {
    SCOPED_TRACE(at);
    host_cuda::Reset(1, at);
    auto side = MakeCudaSide();
    auto copier = NewCudaCopier(0, nullptr);
    ASSERT_TRUE(copier.ok());
    Calls calls(*side);
    host_cuda::FailOnce(at);
    const absl::Status first = calls.Run(**copier);
    EXPECT_EQ(host_cuda::TakeLastError(), cudaSuccess);
    EXPECT_TRUE(calls.owners_gone());
    if (first.ok()) continue;
    ++failures;
    // The buffers are somebody else's now.
    calls.Overwrite();
    host_cuda::RunAll();
    EXPECT_TRUE(calls.Untouched());
  }
  EXPECT_GT(failures, 40u);
}

TEST(HostCudaCopier, AFailureToOpenIsNotToldToTheEngine) {
  for (std::uint64_t at = 0; at < 20; ++at) {
    host_cuda::Reset(1, 1);
    host_cuda::FailOnce(at);
    EXPECT_FALSE(NewCudaCopier(0, nullptr).ok()) << at;
    EXPECT_EQ(host_cuda::TakeLastError(), cudaSuccess) << at;
    EXPECT_EQ(host_cuda::live(), 0u) << at;
  }
}

// Copies that go directly and those through chunks, of the same rows, without waiting between.
TEST(HostCudaCopier, WaysThroughTheCardKeepTheOrderOfTheCalls) {
  constexpr std::uint32_t kRows = 512;
  constexpr std::uint64_t kRowBytes = 2048;
  constexpr std::uint64_t kBytes = kRows * kRowBytes;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    host_cuda::Reset(1, seed);
    std::mt19937_64 random(seed);
    auto side = MakeCudaSide();
    const std::shared_ptr<char> card = side->DeviceMemory(kBytes, 0);
    const PlaneRows flat{card.get(), kRows, kRowBytes, kRowBytes, 0, 0, {}};
    const PlaneRows apart{card.get(), kRows, kRowBytes / 2, kRowBytes, 0, 0, {}};
    auto copier = NewCudaCopier(0, nullptr);
    ASSERT_TRUE(copier.ok());
    std::string held(kBytes, '\0');  // what the card holds in the end
    std::fill_n(card.get(), kBytes, '\0');
    std::vector<std::pair<std::shared_ptr<char>, std::string>> copied;
    for (int call = 0; call < 12; ++call) {
      const bool direct = random() % 2 == 0;
      const PlaneRows& rows = direct ? flat : apart;
      const std::uint64_t bytes = rows.rows * rows.row_bytes;
      std::shared_ptr<char> pinned = side->HostMemory(bytes);
      if (random() % 2 == 0) {
        std::fill_n(pinned.get(), bytes, static_cast<char>('a' + call));
        for (std::uint32_t row = 0; row < kRows; ++row) {
          held.replace(row * kRowBytes, rows.row_bytes, rows.row_bytes,
                       static_cast<char>('a' + call));
        }
        ASSERT_TRUE((*copier)->CopyIn({{&rows, 0, bytes, 0}}, pinned.get(), pinned).ok());
        continue;
      }
      std::string expected;
      for (std::uint32_t row = 0; row < kRows; ++row) {
        expected += held.substr(row * kRowBytes, rows.row_bytes);
      }
      ASSERT_TRUE((*copier)->CopyOut({{&rows, 0, bytes, 0}}, pinned.get()).ok());
      copied.emplace_back(std::move(pinned), std::move(expected));
    }
    ASSERT_TRUE((*copier)->Wait().ok());
    for (const auto& [bytes, expected] : copied) {
      EXPECT_EQ(std::memcmp(bytes.get(), expected.data(), expected.size()), 0);
    }
    EXPECT_EQ(std::memcmp(card.get(), held.data(), kBytes), 0);
  }
}

// Whoever copies within a budget of time waits for most of it, not all at the end.
TEST(HostCudaCopier, LittleOfWhatGoesDirectlyIsUnderWayAfterTheCall) {
  constexpr std::uint64_t kPiece = 1u << 20;
  constexpr std::uint64_t kPieces = 100;
  host_cuda::Reset(1, 1);
  auto side = MakeCudaSide();
  const std::shared_ptr<char> card = side->DeviceMemory(2 * kPieces * kPiece, 0);
  std::shared_ptr<char> pinned = side->HostMemory(kPieces * kPiece);
  std::fill_n(card.get(), 2 * kPieces * kPiece, 'o');
  std::fill_n(pinned.get(), kPieces * kPiece, 'n');
  auto copier = NewCudaCopier(0, nullptr);
  ASSERT_TRUE(copier.ok());
  // Apart, so that they stay pieces.
  PlaneRows paged{card.get(), kPieces, kPiece, kPiece, 1, 2 * kPiece, {}};
  for (std::uint64_t page = 0; page < kPieces; ++page) {
    paged.pages.push_back(static_cast<std::int32_t>(page));
  }
  const PlaneRun run{&paged, 0, kPieces * kPiece, 0};
  ASSERT_TRUE((*copier)->CopyIn({run}, pinned.get(), pinned).ok());
  std::uint64_t there = 0;
  for (std::uint64_t page = 0; page < kPieces; ++page) {
    there += card.get()[(2 * page + 1) * kPiece - 1] == 'n';
  }
  EXPECT_GE(there, kPieces - 33);
  EXPECT_LT(there, kPieces);
  ASSERT_TRUE((*copier)->Wait().ok());
  EXPECT_EQ(card.get()[(2 * kPieces - 1) * kPiece - 1], 'n');
}

}  // namespace
}  // namespace parkade::test
