// Bytes of a context's tensors, moved by the copier of the device that they lie on.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ggml-backend.h"
#include "src/device/stage_copier.h"

struct ggml_tensor;

namespace parkade {

// One copier a device, made when something of it is moved first. Serving thread only.
class LlamaCopiers {
 public:
  // Of the device that a tensor lies on. Null: there is none for it, and llama.cpp's own calls
  // copy, one run at a time, each waited for.
  using Factory =
      std::function<absl::StatusOr<std::unique_ptr<StageCopier>>(const ggml_tensor* tensor)>;
  // `make` null: for the host's memory and NVIDIA cards. `tell` is given one line where a device
  // has a copier that can't be made; may be null.
  explicit LlamaCopiers(Factory make = nullptr,
                        std::function<void(const std::string& line)> tell = nullptr);

  StageCopier* For(const ggml_tensor* tensor);
  // Until all copies are done; the first error.
  absl::Status Wait();

 private:
  const Factory make_;
  const std::function<void(const std::string& line)> tell_;
  std::map<ggml_backend_buffer_type_t, std::unique_ptr<StageCopier>> copiers_;
};

// Runs of bytes between tensors and one packed buffer of the host's.
class TensorMoves {
 public:
  explicit TensorMoves(LlamaCopiers* copiers) : copiers_(copiers) {}

  // `offset` in the tensor's data, `host_offset` in the buffer.
  void Add(ggml_tensor* tensor, std::uint64_t offset, std::uint64_t bytes,
           std::uint64_t host_offset);
  // As StageCopier's: `host` must live until Wait. What llama.cpp throws comes through.
  absl::Status CopyOut(char* host);
  absl::Status CopyIn(const char* host, const std::shared_ptr<const void>& owner);

 private:
  struct Moves {
    std::deque<PlaneRows> planes;  // whole tensors, one row each; runs point to them
    std::vector<PlaneRun> runs;
    const ggml_tensor* last = nullptr;  // whose plane is the last one
  };
  struct Single {
    ggml_tensor* tensor = nullptr;
    PlaneRun run;
  };

  LlamaCopiers* const copiers_;
  std::map<StageCopier*, Moves> moves_;
  std::vector<Single> singles_;  // of devices without a copier
};

}  // namespace parkade
