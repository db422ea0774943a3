// Where the extents of recently used parks lie; bounded, in memory.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tiers/disk/catalogue_db.h"
#include "tiers/disk/key_hash.h"
#include "tiers/disk/rows.h"
#include "tiers/disk/segment_reader.h"

namespace parkade::disk {

struct ParkPlace {
  SegmentRef ref;
  std::vector<StoredExtent> extents;  // by ordinal
};
using SharedPlace = std::shared_ptr<const ParkPlace>;

// A park's row of the manifest, unwrapped. NotFound: no such park.
struct ManifestRow {
  SegmentRef ref;
  ParkSummary summary;
};
absl::StatusOr<ManifestRow> ReadManifest(const CatalogueDb& db, const ParkKey& key);

// The copies of a park's rows that its segment's head has, of one family, in the order written.
absl::StatusOr<std::vector<std::string>> ReadCopiedRows(const SegmentReader& reader,
                                                        std::uint64_t segment, const ParkKey& key,
                                                        Family family);

// From the catalogue; image rows that it has lost or damaged come from the segment's copy.
absl::StatusOr<SharedPlace> LoadPlace(const CatalogueDb& db, const SegmentReader& reader,
                                      const ParkKey& key);

// Least recently used first out. Thread safe.
class ParkPlaces {
 public:
  SharedPlace Find(const ParkKey& key);
  // Grows with every Erase and Clear.
  std::uint64_t epoch() const;
  // `epoch` was read before the place was loaded: a place that was erased meanwhile, and whose key
  // may stand for another park now, is not put.
  void Put(const ParkKey& key, SharedPlace place, std::uint64_t epoch);
  void Erase(const ParkKey& key);
  void Clear();

  static constexpr std::size_t kMostExtents = 32768;
  // About 80 bytes an extent.
  static constexpr std::size_t kMostBytes = 80 * kMostExtents;

 private:
  struct Entry {
    SharedPlace place;
    std::list<ParkKey>::iterator position;
  };
  void EraseLocked(const ParkKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<ParkKey, Entry, ParkKeyHash> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<ParkKey> recent_ ABSL_GUARDED_BY(mutex_);  // newest first
  std::size_t extents_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace parkade::disk
