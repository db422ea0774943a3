// Hashes of ids and keys for hash tables in memory; ids are random already.
#pragma once

#include <cstddef>

#include "parkade/image.h"

namespace parkade::disk {

struct DigestHash {
  std::size_t operator()(const Digest128& digest) const {
    return static_cast<std::size_t>(digest.high * 0x9e3779b97f4a7c15ull + digest.low);
  }
};

struct ParkKeyHash {
  std::size_t operator()(const ParkKey& key) const {
    return DigestHash()(key.conversation) + key.park * 0xff51afd7ed558ccdull;
  }
};

}  // namespace parkade::disk
