// What the cache needs from an inference engine: one sequence's memory, seen as rows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "parkade/image.h"

namespace parkade {

// One sequence (slot) of an engine. All calls come from the engine's serving thread, one at a time.
// No call throws.
class EngineSequence {
 public:
  virtual ~EngineSequence() = default;

  virtual const StateLayout& layout() const = 0;
  // Where the layers really are, now.
  virtual const StageMap& stages() const = 0;

  // ---- capture ----

  // Takes stock of the rows this sequence holds. Fails (FailedPrecondition) when memory does not
  // hold rows for all of [0, tokens): nothing may be parked then. Cost: one walk over the cells.
  // `tokens` counts the sequence's tokens; the state, where the model has one, is at `tokens`.
  virtual absl::Status BeginCapture(std::uint32_t tokens) = 0;
  // After BeginCapture: first position p such that window rows [p, tokens) are all in memory.
  virtual std::uint32_t WindowBegin() const = 0;
  // Copies the raw bytes of an extent (cut for stages()) to `destination` (raw_bytes long).
  // Only rows found by the last BeginCapture may be asked for. An engine whose rows lie in a
  // device's memory may only begin the copy here: the bytes are there after FinishExports.
  virtual absl::Status Export(const ExtentInfo& extent, char* destination) = 0;
  // Waits for all Exports since BeginCapture; the destinations must live until then, or until
  // EndCapture. On error what they hold is undefined.
  virtual absl::Status FinishExports() { return absl::OkStatus(); }
  virtual void EndCapture() = 0;

  // ---- restore ----

  // Clears the sequence and makes room for [0, tokens): full rows for all, window rows for
  // [window_begin, tokens), recurrent state at `tokens`. ResourceExhausted: no room; the sequence
  // is empty then.
  virtual absl::Status BeginImport(std::uint32_t tokens, std::uint32_t window_begin) = 0;
  // Copies one stored extent's rows in, as far as they lie inside what BeginImport placed.
  // `stored` is the stage map of the park the extent came from; it need not equal stages().
  virtual absl::Status Import(const StageMap& stored, const ExtentInfo& extent,
                              absl::Span<const char> raw) = 0;
  // The same for bytes that may be kept: an engine whose rows lie in a device's memory may only
  // begin the copy and hold `raw` until it is done, at the latest when FinishImport or Clear
  // returns.
  virtual absl::Status ImportShared(const StageMap& stored, const ExtentInfo& extent,
                                    const ExtentBytes& raw) {
    return Import(stored, extent, absl::Span<const char>(raw->data(), raw->size()));
  }
  // The engine may do other work until the next call: copies that this could meet must be done. On
  // error the sequence is to be cleared.
  virtual absl::Status PauseImport() { return absl::OkStatus(); }
  // Keeps [0, tokens) (at most what BeginImport placed; equal to it when the model has window
  // planes or recurrent state) and checks that memory agrees. On error the sequence is empty.
  virtual absl::Status FinishImport(std::uint32_t tokens) = 0;
  virtual void Clear() = 0;
};

}  // namespace parkade
