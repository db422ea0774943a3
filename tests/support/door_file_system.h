// RocksDB's own files through the disk tier's door, so that what decorates the door reaches them
// too.
#pragma once

#include <memory>

#include "tiers/disk/file_door.h"

namespace parkade::test {

// Files that are written, read, renamed, removed and synced go through `door`, which outlives it;
// locks and listings are the system's. Logs are not allocated ahead.
std::shared_ptr<rocksdb::FileSystem> MakeDoorFileSystem(disk::FileDoor* door);

}  // namespace parkade::test
