#include "tests/unit/disk_byte_classes.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/format/segment.h"

namespace parkade::test {
namespace {

using Fields = std::vector<std::pair<const char*, std::uint64_t>>;

class Classifier {
 public:
  Classifier(const std::string& segment, const SealKey* key) {
    std::uint64_t needed = 0;
    absl::StatusOr<SegmentHead> head = DecodeSegmentHead(segment, &needed, key);
    if (head.ok()) head_ = *std::move(head);
  }

  std::vector<ByteClass> Run() {
    AddFields("header", {{"magic", 8},
                         {"version", 4},
                         {"row count", 4},
                         {"number", 8},
                         {"payload size", 8},
                         {"rows size", 8},
                         {"rows checksum", 8},
                         {"reserved", 8},
                         {"checksum", 8}});
    if (head_.sealer != nullptr) {
      AddFields("seal block",
                {{"key id", 16}, {"salt", 16}, {"rows tag", 16}, {"reserved", 8}, {"checksum", 8}});
      Add("sealed rows, begin", 16);
      at_ = head_.head_bytes - 16;
      Add("sealed rows, end", 16);
    } else {
      AddRows();
    }
    AddExtents();
    return std::move(classes_);
  }

 private:
  void Add(const std::string& name, std::uint64_t size) {
    if (size > 0) classes_.push_back({name, at_, size});
    at_ += size;
  }
  void AddFields(const std::string& what, const Fields& fields) {
    for (const auto& [name, size] : fields) Add(what + ", " + name, size);
  }

  void AddRows() {
    static constexpr const char* kNames[] = {"manifest", "tokens", "image",     "usage",
                                             "identity", "name",   "tombstone", "meta"};
    for (const CatalogueRow& row : head_.rows) {
      const std::string name = std::string(kNames[static_cast<int>(row.family)]) + " row, ";
      Add(name + "family", 1);
      Add(name + "key size", 4);
      Add(name + "value size", 4);
      Add(name + "key", row.key.size());
      Add(name + "value", row.value.size());
    }
    Add("padding of the rows", head_.head_bytes - at_);
  }

  void AddExtents() {
    std::vector<StoredExtent> extents;
    for (const CatalogueRow& row : head_.rows) {
      if (row.family != CatalogueRow::Family::kImage) continue;
      const absl::StatusOr<ImageRow> image = DecodeImage(row.value);
      if (image.ok()) extents.insert(extents.end(), image->extents.begin(), image->extents.end());
    }
    std::sort(extents.begin(), extents.end(),
              [](const StoredExtent& a, const StoredExtent& b) { return a.offset < b.offset; });
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const StoredExtent& extent = extents[i];
      const std::uint64_t header = extent.offset - kExtentHeaderBytes;
      // The first, the last, and what lies between all of them.
      if (header > at_) Add("padding before an extent", header - at_);
      at_ = extent.offset + extent.stored_bytes;
      if (i != 0 && i + 1 != extents.size()) continue;
      at_ = header;
      AddExtent(i == 0 ? "first extent" : "last extent", extent);
    }
  }

  void AddExtent(const std::string& which, const StoredExtent& extent) {
    AddFields(which + " header", {{"magic", 4},
                                  {"conversation", 16},
                                  {"park", 4},
                                  {"ordinal", 4},
                                  {"stored bytes", 4},
                                  {"raw bytes", 4},
                                  {"codec", 1},
                                  {"group", 1},
                                  {"stage", 2},
                                  {"checksum or tag", 16},
                                  {"own checksum", 8}});
    const std::uint64_t piece = std::min<std::uint64_t>(16, extent.stored_bytes);
    Add(which + " payload, begin", piece);
    at_ = extent.offset + (extent.stored_bytes - piece) / 2;
    Add(which + " payload, middle", piece);
    at_ = extent.offset + extent.stored_bytes - piece;
    Add(which + " payload, end", piece);
  }

  SegmentHead head_;
  std::uint64_t at_ = 0;
  std::vector<ByteClass> classes_;
};

}  // namespace

std::vector<ByteClass> ByteClassesOf(const std::string& segment, const SealKey* key) {
  return Classifier(segment, key).Run();
}

std::string DamageName(ByteDamage damage) {
  switch (damage) {
    case ByteDamage::kFlipped:
      return "Flipped";
    case ByteDamage::kZeroed:
      return "Zeroed";
    case ByteDamage::kSwapped:
      return "Swapped";
    case ByteDamage::kCut:
      return "Cut";
  }
  return "";
}

std::string Damaged(std::string bytes, const ByteClass& where, ByteDamage damage,
                    const std::string& other) {
  switch (damage) {
    case ByteDamage::kFlipped:
      bytes[where.at + where.size / 2] ^= 0x10;
      break;
    case ByteDamage::kZeroed:
      bytes.replace(where.at, where.size, where.size, '\0');
      break;
    case ByteDamage::kSwapped: {
      const std::string theirs = where.at < other.size() ? other.substr(where.at, where.size) : "";
      bytes.replace(where.at, theirs.size(), theirs);
      break;
    }
    case ByteDamage::kCut:
      bytes.resize(where.at);
      break;
  }
  return bytes;
}

}  // namespace parkade::test
