// One suite for all stage copiers: every byte where a plain reference puts it, and no other.

#include "src/device/stage_copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "tests/support/copier_side.h"
#include "tests/support/environment.h"

namespace parkade::test {
namespace {

using Random = std::mt19937_64;

std::uint64_t Below(Random& random, std::uint64_t count) { return random() % count; }

std::string RandomBytes(Random& random, std::size_t count) {
  std::string bytes(count + sizeof(std::uint64_t), '\0');
  for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
  bytes.resize(count);
  return bytes;
}

// A plane's memory on the device, and a copy of what must be in it.
struct TestPlane {
  PlaneRows rows;
  std::shared_ptr<char> memory;
  std::string expected;

  std::uint64_t bytes() const { return rows.rows * rows.row_bytes; }
  // Where byte `at` of the rows lies in the memory: the reference that copiers are held to.
  std::size_t PlaceOf(std::uint64_t at) const {
    const std::uint64_t row = at / rows.row_bytes;
    const std::uint64_t within = at % rows.row_bytes;
    if (rows.page_rows == 0) return row * rows.row_stride + within;
    return static_cast<std::uint64_t>(rows.pages[row / rows.page_rows]) * rows.page_stride +
           row % rows.page_rows * rows.row_stride + within;
  }
};

struct Shape {
  std::uint64_t row_bytes = 0;
  std::uint32_t rows = 0;
  std::uint64_t gap = 0;        // between rows
  std::uint32_t page_rows = 0;  // 0: flat
};

Shape RandomShape(Random& random) {
  static constexpr std::uint64_t kRowBytes[] = {1, 16, 36, 100, 272, 512, 1024, 4096, 70000};
  static constexpr std::uint64_t kGaps[] = {0, 0, 0, 4, 16, 512, 7};
  static constexpr std::uint32_t kPageRows[] = {0, 0, 16, 32, 64, 256, 5};
  Shape shape;
  shape.row_bytes = kRowBytes[Below(random, std::size(kRowBytes))];
  shape.gap = kGaps[Below(random, std::size(kGaps))];
  shape.page_rows = kPageRows[Below(random, std::size(kPageRows))];
  const std::uint64_t most = std::max<std::uint64_t>(2, (1u << 20) / shape.row_bytes);
  shape.rows = 1 + static_cast<std::uint32_t>(Below(random, std::min<std::uint64_t>(most, 3000)));
  return shape;
}

class StageCopierTest : public ::testing::TestWithParam<CopierKind> {
 protected:
  void SetUp() override {
    seed_ = FromEnvironment("PARKADE_SEED", std::random_device()());
    RecordProperty("seed", std::to_string(seed_));
    random_.seed(seed_);
    side_ = GetParam().make(seed_);
    if (!side_->unavailable().empty()) GTEST_SKIP() << side_->unavailable();
    auto copier = side_->NewCopier(0);
    ASSERT_TRUE(copier.ok()) << copier.status();
    copier_ = *std::move(copier);
  }
  std::string Seed() const { return "PARKADE_SEED=" + std::to_string(seed_); }

  TestPlane MakePlane(const Shape& shape) {
    TestPlane plane;
    plane.rows.rows = shape.rows;
    plane.rows.row_bytes = shape.row_bytes;
    plane.rows.row_stride = shape.row_bytes + shape.gap;
    std::size_t size = shape.rows * plane.rows.row_stride;
    if (shape.page_rows > 0) {
      plane.rows.page_rows = shape.page_rows;
      plane.rows.page_stride = shape.page_rows * plane.rows.row_stride + shape.gap;
      const std::uint32_t needed = (shape.rows + shape.page_rows - 1) / shape.page_rows;
      // Some belong to others, and some of ours follow one another.
      std::vector<std::int32_t> pool(needed + 3);
      std::iota(pool.begin(), pool.end(), 0);
      if (Below(random_, 2) == 0) std::shuffle(pool.begin(), pool.end(), random_);
      plane.rows.pages.assign(pool.begin(), pool.begin() + needed);
      size = pool.size() * plane.rows.page_stride;
    }
    plane.memory = side_->DeviceMemory(size, 0);
    plane.rows.base = plane.memory.get();
    plane.expected = RandomBytes(random_, size);
    side_->Write(plane.rows.base, plane.expected);
    return plane;
  }

  struct Job {
    std::vector<PlaneRun> runs;
    std::size_t host_bytes = 0;
  };
  // Of each plane all, or some parts that don't overlap; in the host's memory one behind the other,
  // now and then with something between them.
  Job MakeJob(const std::vector<TestPlane>& planes) {
    Job job;
    for (const TestPlane& plane : planes) {
      std::uint64_t at = Below(random_, 2) == 0 ? 0 : Below(random_, plane.bytes());
      while (at < plane.bytes()) {
        const bool all = Below(random_, 2) == 0;
        const std::uint64_t bytes =
            all ? plane.bytes() - at : 1 + Below(random_, plane.bytes() - at);
        job.runs.push_back({&plane.rows, at, bytes, job.host_bytes});
        job.host_bytes += bytes;
        if (Below(random_, 4) == 0) job.host_bytes += Below(random_, 100);
        at += bytes + (Below(random_, 2) == 0 ? 0 : Below(random_, 5000));
      }
    }
    return job;
  }

  // Page-locked, or not.
  std::shared_ptr<char> HostBytes(std::size_t bytes) {
    if (Below(random_, 2) == 0) return side_->HostMemory(std::max<std::size_t>(bytes, 1));
    return std::shared_ptr<char>(new char[bytes + 1], std::default_delete<char[]>());
  }

  static const TestPlane& PlaneOf(const std::vector<TestPlane>& planes, const PlaneRun& run) {
    return *std::find_if(planes.begin(), planes.end(),
                         [&run](const TestPlane& plane) { return &plane.rows == run.plane; });
  }

  // What CopyOut must leave where there was `before`.
  static std::string Packed(const std::vector<TestPlane>& planes, const Job& job,
                            std::string before) {
    for (const PlaneRun& run : job.runs) {
      const TestPlane& plane = PlaneOf(planes, run);
      for (std::uint64_t i = 0; i < run.bytes; ++i) {
        before[run.host_offset + i] = plane.expected[plane.PlaceOf(run.begin + i)];
      }
    }
    return before;
  }

  static void Spread(std::vector<TestPlane>& planes, const Job& job, const std::string& bytes) {
    for (TestPlane& plane : planes) {
      for (const PlaneRun& run : job.runs) {
        if (run.plane != &plane.rows) continue;
        for (std::uint64_t i = 0; i < run.bytes; ++i) {
          plane.expected[plane.PlaceOf(run.begin + i)] = bytes[run.host_offset + i];
        }
      }
    }
  }

  void ExpectPlanes(const std::vector<TestPlane>& planes) {
    for (std::size_t i = 0; i < planes.size(); ++i) {
      EXPECT_TRUE(side_->Read(planes[i].rows.base, planes[i].expected.size()) == planes[i].expected)
          << "plane " << i << ", " << Seed();
    }
  }

  std::uint64_t seed_ = 0;
  Random random_;
  std::unique_ptr<CopierSide> side_;
  std::unique_ptr<StageCopier> copier_;
};

TEST_P(StageCopierTest, EveryByteComesOutAndGoesInWhereItBelongs) {
  for (int round = 0; round < 25 && !HasFailure(); ++round) {
    SCOPED_TRACE(Seed() + " round " + std::to_string(round));
    std::vector<TestPlane> planes;
    for (std::uint64_t count = 1 + Below(random_, 6); count > 0; --count) {
      planes.push_back(MakePlane(RandomShape(random_)));
    }
    const Job out = MakeJob(planes);
    const std::string before = RandomBytes(random_, out.host_bytes);
    const std::shared_ptr<char> host = HostBytes(out.host_bytes);
    std::copy(before.begin(), before.end(), host.get());
    ASSERT_EQ(copier_->CopyOut(out.runs, host.get()), absl::OkStatus());
    ASSERT_EQ(copier_->Wait(), absl::OkStatus());
    EXPECT_TRUE(std::string(host.get(), out.host_bytes) == Packed(planes, out, before));

    const Job in = MakeJob(planes);
    const std::string bytes = RandomBytes(random_, in.host_bytes);
    std::shared_ptr<char> source = HostBytes(in.host_bytes);
    std::copy(bytes.begin(), bytes.end(), source.get());
    ASSERT_EQ(copier_->CopyIn(in.runs, source.get(), source), absl::OkStatus());
    ASSERT_EQ(copier_->Wait(), absl::OkStatus());
    Spread(planes, in, bytes);
    ExpectPlanes(planes);
  }
}

// Many calls behind one another, each of more than one chunk, waited for once.
TEST_P(StageCopierTest, CallsKeepTheirOrder) {
  std::vector<TestPlane> planes;
  planes.push_back(MakePlane({4096, 1500, 0, 0}));    // in one piece
  planes.push_back(MakePlane({1024, 5000, 512, 0}));  // rows apart
  planes.push_back(MakePlane({2048, 3000, 0, 16}));   // in pages
  const auto size =
      std::accumulate(planes.begin(), planes.end(), std::size_t{0},
                      [](std::size_t sum, const TestPlane& plane) { return sum + plane.bytes(); });
  Job all;
  for (const TestPlane& plane : planes) {
    all.runs.push_back({&plane.rows, 0, plane.bytes(), all.host_bytes});
    all.host_bytes += plane.bytes();
  }
  ASSERT_EQ(all.host_bytes, size);
  std::vector<std::shared_ptr<char>> outs;
  std::vector<std::string> expected;
  std::vector<std::weak_ptr<char>> owners;
  for (int call = 0; call < 5; ++call) {
    outs.push_back(HostBytes(size));
    expected.push_back(Packed(planes, all, std::string(size, '\0')));
    ASSERT_EQ(copier_->CopyOut(all.runs, outs.back().get()), absl::OkStatus());
    const std::string bytes = RandomBytes(random_, size);
    std::shared_ptr<char> source = HostBytes(size);
    std::copy(bytes.begin(), bytes.end(), source.get());
    // Bytes that are let go before they were read are gone.
    char* data = source.get();
    std::shared_ptr<char> owner(data, [source, size](char* gone) { std::fill_n(gone, size, 'x'); });
    owners.push_back(owner);
    ASSERT_EQ(copier_->CopyIn(all.runs, data, std::move(owner)), absl::OkStatus());
    Spread(planes, all, bytes);
  }
  ASSERT_EQ(copier_->Wait(), absl::OkStatus());
  for (std::size_t call = 0; call < outs.size(); ++call) {
    EXPECT_TRUE(std::string(outs[call].get(), size) == expected[call]) << call << ", " << Seed();
    EXPECT_TRUE(owners[call].expired()) << call;
  }
  ExpectPlanes(planes);
}

TEST_P(StageCopierTest, WhatDoesNotFitIsRefusedWhole) {
  std::vector<TestPlane> planes;
  planes.push_back(MakePlane({100, 50, 0, 16}));
  planes.push_back(MakePlane({100, 50, 28, 0}));
  PlaneRows hole = planes[0].rows;
  hole.pages[2] = -1;
  PlaneRows short_table = planes[0].rows;
  short_table.pages.pop_back();
  PlaneRows no_rows = planes[1].rows;
  no_rows.row_bytes = 0;
  PlaneRows overlap = planes[1].rows;
  overlap.row_stride = 99;
  const PlaneRun good{&planes[1].rows, 0, 5000, 0};
  const std::vector<PlaneRun> bad = {
      {&hole, 0, 5000, 5000},           {&short_table, 0, 5000, 5000},
      {&no_rows, 0, 1, 5000},           {&overlap, 0, 100, 5000},
      {&planes[0].rows, 1, 5000, 5000}, {&planes[0].rows, UINT64_MAX, 2, 5000},
  };
  const std::shared_ptr<char> host = side_->HostMemory(10000);
  std::fill_n(host.get(), 10000, 'h');
  for (const PlaneRun& run : bad) {
    const std::vector<PlaneRun> runs = {good, run};
    EXPECT_EQ(copier_->CopyOut(runs, host.get()).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(copier_->CopyIn(runs, host.get(), nullptr).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(copier_->Wait(), absl::OkStatus());
  EXPECT_EQ(std::string(host.get(), 10000), std::string(10000, 'h'));
  ExpectPlanes(planes);
  // A page that is not there is no matter where it is not asked for.
  const PlaneRun before_hole{&hole, 0, 3200, 0};
  EXPECT_EQ(copier_->CopyOut({before_hole}, host.get()), absl::OkStatus());
  EXPECT_EQ(copier_->CopyOut({}, nullptr), absl::OkStatus());
  EXPECT_EQ(copier_->Wait(), absl::OkStatus());
}

TEST_P(StageCopierTest, WhatTheEngineHadBegunComesFirst) {
  std::vector<TestPlane> planes;
  planes.push_back(MakePlane({1024, 700, 0, 64}));
  planes.push_back(MakePlane({4096, 300, 0, 0}));
  const std::shared_ptr<char> host = side_->HostMemory(planes[0].bytes() + planes[1].bytes());
  std::size_t at = 0;
  for (TestPlane& plane : planes) {
    plane.expected = RandomBytes(random_, plane.expected.size());
    side_->WriteAsEngine(plane.rows.base, plane.expected);
    const PlaneRun run{&plane.rows, 0, plane.bytes(), at};
    ASSERT_EQ(copier_->CopyOut({run}, host.get()), absl::OkStatus());
    at += plane.bytes();
  }
  ASSERT_EQ(copier_->Wait(), absl::OkStatus());
  const Job all{{{&planes[0].rows, 0, planes[0].bytes(), 0},
                 {&planes[1].rows, 0, planes[1].bytes(), planes[0].bytes()}},
                at};
  EXPECT_TRUE(std::string(host.get(), at) == Packed(planes, all, std::string(at, '\0')));
}

// Each stage has one, and nothing of one waits for the other.
TEST_P(StageCopierTest, StagesCopySideBySide) {
  const int device = side_->devices() - 1;
  auto second = side_->NewCopier(device);
  ASSERT_TRUE(second.ok()) << second.status();
  const std::string first_bytes = RandomBytes(random_, 9u << 20);
  const std::string second_bytes = RandomBytes(random_, 9u << 20);
  struct Stage {
    StageCopier* copier;
    const std::string* bytes;
    std::shared_ptr<char> memory;
    std::shared_ptr<char> source;
    PlaneRows rows;
  };
  std::vector<Stage> stages = {
      {copier_.get(), &first_bytes, side_->DeviceMemory(9u << 20, 0), {}, {}},
      {second->get(), &second_bytes, side_->DeviceMemory(9u << 20, device), {}, {}}};
  for (Stage& stage : stages) {
    stage.source = side_->HostMemory(stage.bytes->size());
    std::copy(stage.bytes->begin(), stage.bytes->end(), stage.source.get());
    stage.rows = {stage.memory.get(), 9216, 1024, 1024, 0, 0, {}};
  }
  for (std::uint64_t at = 0; at < (9u << 20); at += 1u << 20) {
    for (Stage& stage : stages) {
      const PlaneRun run{&stage.rows, at, 1u << 20, at};
      ASSERT_EQ(stage.copier->CopyIn({run}, stage.source.get(), stage.source), absl::OkStatus());
    }
  }
  for (Stage& stage : stages) {
    ASSERT_EQ(stage.copier->Wait(), absl::OkStatus());
    EXPECT_TRUE(side_->Read(stage.rows.base, stage.bytes->size()) == *stage.bytes);
    EXPECT_EQ(stage.source.use_count(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Copiers, StageCopierTest, ::testing::ValuesIn(CopierKinds()),
                         [](const ::testing::TestParamInfo<CopierKind>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace parkade::test
