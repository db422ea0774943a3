// A copier that copies nothing until it is waited for, as a device may, over the host's memory.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/device/copy_blocks.h"
#include "src/device/stage_copier.h"

namespace parkade::test {

// What all copiers of one test have done, and what they are to do.
struct LateCopies {
  std::uint64_t out_bytes = 0;
  std::uint64_t in_bytes = 0;
  int copiers = 0;
  std::size_t waiting = 0;  // copies that nobody has waited for
  absl::Status refuse;      // what CopyIn and CopyOut say
  absl::Status next_wait;   // not OK: what the next Wait says; what waited for it is not copied
};

class LateCopier : public StageCopier {
 public:
  // `copies` must outlive it; null: its own.
  explicit LateCopier(std::string name, LateCopies* copies = nullptr)
      : name_(std::move(name)), copies_(copies != nullptr ? copies : &own_) {
    ++copies_->copiers;
  }
  ~LateCopier() override { (void)Wait(); }

  const std::string& name() const override { return name_; }
  absl::Status CopyOut(absl::Span<const PlaneRun> runs, char* host) override {
    return Keep(runs, {host, nullptr, nullptr, {}, {}}, &copies_->out_bytes);
  }
  absl::Status CopyIn(absl::Span<const PlaneRun> runs, const char* host,
                      std::shared_ptr<const void> owner) override {
    return Keep(runs, {nullptr, host, std::move(owner), {}, {}}, &copies_->in_bytes);
  }
  absl::Status Wait() override {
    absl::Status status = std::exchange(copies_->next_wait, absl::OkStatus());
    if (!status.ok()) {
      copies_->waiting -= jobs_.size();
      jobs_.clear();
    }
    for (; !jobs_.empty(); jobs_.pop_front(), --copies_->waiting) {
      const Job& job = jobs_.front();
      status.Update(job.out != nullptr ? host_->CopyOut(job.runs, job.out)
                                       : host_->CopyIn(job.runs, job.in, nullptr));
    }
    return status;
  }

  void FailNextWait() { copies_->next_wait = absl::UnavailableError("the device is gone"); }
  std::size_t waiting() const { return jobs_.size(); }

 private:
  struct Job {
    char* out = nullptr;
    const char* in = nullptr;
    std::shared_ptr<const void> owner;
    std::vector<PlaneRows> planes;  // what the runs point to: the caller's may be gone by then
    std::vector<PlaneRun> runs;
  };

  absl::Status Keep(absl::Span<const PlaneRun> runs, Job job, std::uint64_t* bytes) {
    if (!copies_->refuse.ok()) return copies_->refuse;
    std::vector<CopyBlock> blocks;
    if (absl::Status s = ExpandRuns(runs, &blocks); !s.ok()) return s;
    for (const PlaneRun& run : runs) {
      *bytes += run.bytes;
      job.planes.push_back(*run.plane);
      job.runs.push_back(run);
    }
    Job& kept = jobs_.emplace_back(std::move(job));
    for (std::size_t i = 0; i < kept.runs.size(); ++i) kept.runs[i].plane = &kept.planes[i];
    ++copies_->waiting;
    return absl::OkStatus();
  }

  const std::string name_;
  LateCopies own_;
  LateCopies* const copies_;
  const std::unique_ptr<StageCopier> host_ = NewHostCopier();
  std::deque<Job> jobs_;
};

}  // namespace parkade::test
