#include "tests/support/door_file_system.h"

#include <fcntl.h>
#include <rocksdb/file_system.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "tiers/disk/file_io.h"

namespace parkade::test {
namespace {

using disk::Fd;
using disk::FileDoor;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// As RocksDB's own access to files tells errors.
IOStatus FromErrno(const std::string& name) {
  const int error = errno;
  if (error == ENOSPC || error == EDQUOT) return IOStatus::NoSpace(name, strerror(error));
  if (error == ENOENT) return IOStatus::PathNotFound(name, strerror(error));
  return IOStatus::IOError(name, strerror(error));
}

IOStatus ReadThrough(const Fd& fd, const std::string& name, std::uint64_t offset, std::size_t size,
                     rocksdb::Slice* result, char* scratch) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got =
        fd.door().Read(fd.get(), scratch + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(name);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  *result = rocksdb::Slice(scratch, done);
  return IOStatus::OK();
}

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  IOStatus Read(std::size_t size, const IOOptions&, rocksdb::Slice* result, char* scratch,
                IODebugContext*) override {
    const IOStatus status = ReadThrough(fd_, name_, offset_, size, result, scratch);
    if (status.ok()) offset_ += result->size();
    return status;
  }
  IOStatus Skip(std::uint64_t size) override {
    offset_ += size;
    return IOStatus::OK();
  }

 private:
  const Fd fd_;
  const std::string name_;
  std::uint64_t offset_ = 0;
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  IOStatus Read(std::uint64_t offset, std::size_t size, const IOOptions&, rocksdb::Slice* result,
                char* scratch, IODebugContext*) const override {
    return ReadThrough(fd_, name_, offset, size, result, scratch);
  }

 private:
  const Fd fd_;
  const std::string name_;
};

class WritableFile : public rocksdb::FSWritableFile {
 public:
  WritableFile(Fd fd, std::string name, std::uint64_t size)
      : fd_(std::move(fd)), name_(std::move(name)), size_(size) {}
  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions&, IODebugContext*) override {
    std::size_t done = 0;
    while (done < data.size()) {
      const iovec piece = {const_cast<char*>(data.data()) + done, data.size() - done};
      const ssize_t written = fd_.door().Write(fd_.get(), &piece, 1, static_cast<off_t>(size_));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FromErrno(name_);
      done += static_cast<std::size_t>(written);
      size_ += static_cast<std::uint64_t>(written);
    }
    return IOStatus::OK();
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions&, IODebugContext*) override {
    if (fd_.door().Truncate(fd_.get(), static_cast<off_t>(size)) != 0) return FromErrno(name_);
    size_ = size;
    return IOStatus::OK();
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    fd_ = Fd();
    return IOStatus::OK();
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return fd_.door().SyncData(fd_.get()) == 0 ? IOStatus::OK() : FromErrno(name_);
  }
  bool IsSyncThreadSafe() const override { return true; }
  std::uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }

 private:
  Fd fd_;
  const std::string name_;
  std::uint64_t size_;
};

class Folder : public rocksdb::FSDirectory {
 public:
  Folder(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return fd_.door().SyncFolder(fd_.get()) == 0 ? IOStatus::OK() : FromErrno(name_);
  }

 private:
  const Fd fd_;
  const std::string name_;
};

class DoorFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit DoorFileSystem(FileDoor* door)
      : rocksdb::FileSystemWrapper(rocksdb::FileSystem::Default()), door_(door) {}
  const char* Name() const override { return "ParkadeTestDoor"; }

  IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext*) override {
    return Open(name, O_RDONLY,
                [&](Fd fd) { *file = std::make_unique<SequentialFile>(std::move(fd), name); });
  }
  IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               IODebugContext*) override {
    return Open(name, O_RDONLY,
                [&](Fd fd) { *file = std::make_unique<RandomAccessFile>(std::move(fd), name); });
  }
  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext*) override {
    return Open(name, O_RDWR | O_CREAT | O_TRUNC,
                [&](Fd fd) { *file = std::make_unique<WritableFile>(std::move(fd), name, 0); });
  }
  IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions&,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext*) override {
    return Open(name, O_RDWR | O_CREAT, [&](Fd fd) {
      struct stat info = {};
      fd.door().StatOpen(fd.get(), &info);
      *file = std::make_unique<WritableFile>(std::move(fd), name,
                                             static_cast<std::uint64_t>(info.st_size));
    });
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* folder, IODebugContext*) override {
    return Open(name, O_RDONLY | O_DIRECTORY,
                [&](Fd fd) { *folder = std::make_unique<Folder>(std::move(fd), name); });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    const int result = door_->Rename(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str());
    return result == 0 ? IOStatus::OK() : FromErrno(from);
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    return door_->Unlink(AT_FDCWD, name.c_str(), 0) == 0 ? IOStatus::OK() : FromErrno(name);
  }
  IOStatus DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    return door_->Unlink(AT_FDCWD, name.c_str(), AT_REMOVEDIR) == 0 ? IOStatus::OK()
                                                                    : FromErrno(name);
  }
  IOStatus CreateDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    return door_->MakeFolder(AT_FDCWD, name.c_str()) == 0 ? IOStatus::OK() : FromErrno(name);
  }
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions&, IODebugContext*) override {
    if (door_->MakeFolder(AT_FDCWD, name.c_str()) == 0 || errno == EEXIST) return IOStatus::OK();
    return FromErrno(name);
  }

 private:
  template <typename Use>
  IOStatus Open(const std::string& name, int flags, const Use& use) {
    const int fd = door_->Open(AT_FDCWD, name.c_str(), flags | O_CLOEXEC, 0600);
    if (fd < 0) return FromErrno(name);
    use(Fd(fd, *door_));
    return IOStatus::OK();
  }

  FileDoor* const door_;
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> MakeDoorFileSystem(disk::FileDoor* door) {
  return std::make_shared<DoorFileSystem>(door);
}

}  // namespace parkade::test
