// The one door to files. All that this tier does with files goes through it, so that tests put
// decorators over the real thing: errors, short reads, damaged bytes, syncs that lie, power cuts.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rocksdb {
class FileSystem;
}

namespace parkade::disk {

struct FolderEntry {
  std::string name;
  std::uint64_t inode = 0;
};

// Each call is the system's own, with its result: below zero is an error that errno tells. Hints
// (readahead, early write-back) and what the cache holds are asked of the system directly: they
// change nothing. Thread safe; one for the process, or one that outlives the tier.
class FileDoor {
 public:
  virtual ~FileDoor() = default;
  static FileDoor& System();

  virtual int Open(int folder, const char* name, int flags, mode_t mode);  // openat
  virtual int Close(int fd);
  virtual ssize_t Write(int fd, const iovec* pieces, int count, off_t offset);  // pwritev
  virtual ssize_t Read(int fd, void* to, std::size_t size, off_t offset);       // pread
  virtual int Allocate(int fd, off_t size);                                     // fallocate
  virtual int Truncate(int fd, off_t size);                                     // ftruncate
  virtual int SyncData(int fd);                                                 // fdatasync
  virtual int SyncFolder(int fd);                                               // fsync
  virtual int Rename(int from_folder, const char* from, int to_folder, const char* to);
  virtual int Unlink(int folder, const char* name, int flags);  // unlinkat
  virtual int MakeFolder(int folder, const char* name);         // mkdirat, 0700
  // Of a name; a link is not followed.
  virtual int Stat(int folder, const char* name, struct stat* info);
  virtual int StatOpen(int fd, struct stat* info);
  virtual int StatFileSystem(int fd, struct statvfs* info);
  // Adds what is in the folder but "." and "..", in no order.
  virtual int List(int folder, std::vector<FolderEntry>* entries);

  // What the catalogue's database uses for its files; null: RocksDB's own access to the system.
  virtual std::shared_ptr<rocksdb::FileSystem> CatalogueFiles();
};

}  // namespace parkade::disk
