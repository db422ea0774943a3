#include "src/engine/llama/llama_identity.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ggml.h"
#include "llama-arch.h"
#include "llama-context.h"
#include "llama-model.h"
#include "llama.h"
#include "src/format/checksum.h"

namespace parkade {
namespace {

// How rows are cut into planes, told apart from the stored format's version: raised when the same
// llama.cpp state would be laid out differently by this room.
constexpr int kLayoutVersion = 1;

// Shortest text that gives the same float back.
std::string Exact(float value) { return absl::StrFormat("%.9g", value); }

std::string SwaTypeName(llama_swa_type type) {
  switch (type) {
    case LLAMA_SWA_TYPE_NONE:
      return "none";
    case LLAMA_SWA_TYPE_STANDARD:
      return "standard";
    case LLAMA_SWA_TYPE_CHUNKED:
      return "chunked";
    case LLAMA_SWA_TYPE_SYMMETRIC:
      return "symmetric";
  }
  return absl::StrCat("type ", static_cast<int>(type));
}

// Names of the frequency factors in use, without the layer: long and short ones hold different
// values, and the size of the context decides between them.
std::string RopeFactors(const llama_model& model, const llama_cparams& cparams) {
  std::set<std::string> names;
  for (int layer = 0; layer < static_cast<int>(model.hparams.n_layer_all); ++layer) {
    const ggml_tensor* factors = model.get_rope_factors(cparams, layer);
    if (factors == nullptr) continue;
    std::string name = ggml_get_name(factors);
    if (name.starts_with("blk.")) name.erase(0, name.find('.', 4) + 1);
    names.insert(std::move(name));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ",");
}

std::string Types(const LlamaMemoryView& view, PlaneKind kind) {
  std::set<std::string> names;
  for (const Plane& plane : view.layout().planes) {
    if (plane.kind != kind) continue;
    names.insert(ggml_type_name(static_cast<ggml_type>(plane.element_type)));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ",");
}

std::string LayoutText(const StateLayout& layout) {
  std::string all;
  for (const Plane& plane : layout.planes) {
    absl::StrAppend(&all, static_cast<int>(plane.group), ":", static_cast<int>(plane.kind), ":",
                    plane.layer, ":", plane.element_type, ":", plane.row_bytes, ";");
  }
  return absl::StrCat(layout.planes.size(), " planes, ", ToHex(Checksum(all)));
}

void SetRope(const llama_model& model, const llama_cparams& cparams, Identity* identity) {
  const llama_hparams& hparams = model.hparams;
  identity->Set("rope", absl::StrCat("type ", static_cast<int>(hparams.rope_type), ", base ",
                                     Exact(cparams.rope_freq_base), ", scale ",
                                     Exact(cparams.rope_freq_scale)));
  identity->Set("rope_window", absl::StrCat("base ", Exact(hparams.rope_freq_base_train_swa),
                                            ", scale ", Exact(hparams.rope_freq_scale_train_swa)));
  identity->Set("rope_factors", RopeFactors(model, cparams));
  identity->Set("yarn",
                absl::StrCat("scaling ", static_cast<int>(cparams.rope_scaling_type), ", context ",
                             cparams.n_ctx_orig_yarn, ", ext ", Exact(cparams.yarn_ext_factor),
                             ", attn ", Exact(cparams.yarn_attn_factor), ", beta ",
                             Exact(cparams.yarn_beta_fast), " ", Exact(cparams.yarn_beta_slow)));
}

}  // namespace

void BuildIdentityFields(const LlamaMemoryView& view, const LlamaIdentityExtras& extras,
                         Identity* identity) {
  const llama_model& model = view.context()->get_model();
  const llama_cparams& cparams = view.context()->get_cparams();
  identity->Set("weights", extras.weights);
  identity->Set("architecture", llm_arch_name(model.arch));
  identity->Set("layers", absl::StrCat(model.hparams.n_layer_all));
  identity->Set("adapters", extras.adapters);
  identity->Set("control_vectors", extras.control_vectors);
  identity->Set("projector", extras.projector);
  identity->Set("draft_weights", extras.draft_weights);
  identity->Set("context_type", absl::StrCat(static_cast<int>(cparams.ctx_type)));
  identity->Set("memory", view.memory_name());
  identity->Set("kv_type_k", Types(view, PlaneKind::kKey));
  identity->Set("kv_type_v", Types(view, PlaneKind::kValue));
  identity->Set("kv_rotation", absl::StrCat("k ", absl::StrJoin(view.key_rotations(), " "), ", v ",
                                            absl::StrJoin(view.value_rotations(), " ")));
  SetRope(model, cparams, identity);
  const bool window = model.hparams.swa_type != LLAMA_SWA_TYPE_NONE;
  identity->Set("window", absl::StrCat(window ? model.hparams.n_swa : 0, " ",
                                       SwaTypeName(model.hparams.swa_type)));
  identity->Set("window_rows", view.layout().has_group(RowGroup::kWindow) ? "window" : "all");
  identity->Set("layout", LayoutText(view.layout()));
  identity->Set("layout_version", absl::StrCat(kLayoutVersion));
}

}  // namespace parkade
