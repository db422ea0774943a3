// What of a llama_context must be equal for an image to be reusable in it.
#pragma once

#include <string>

#include "parkade/identity.h"
#include "src/engine/llama/llama_memory_view.h"

namespace parkade {

// What the context itself does not know. Empty: there is none.
struct LlamaIdentityExtras {
  std::string weights;          // content digest of all shards; see llama_weights.h
  std::string adapters;         // content digests with the scales of the request
  std::string control_vectors;  // content digests with scales and layers
  std::string projector;        // content digest and image limits
  std::string draft_weights;    // for the rows of a draft context only
};

// Sets all fields, in a fixed order. Values are those in force, not those asked for: RoPE and YaRN
// after the model's defaults, rotation as the cache applies it, the frequency factors that this
// context size selects. Neither path, version, context size, slots nor split are part of it.
// Any thread while the context lives: only what stays fixed is read. Cheap.
void BuildIdentityFields(const LlamaMemoryView& view, const LlamaIdentityExtras& extras,
                         Identity* identity);

}  // namespace parkade
