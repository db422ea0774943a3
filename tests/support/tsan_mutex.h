// For thread sanitizer builds only, included before everything else (config/cmake/ParkadeTarget).
//
// Debian's Abseil is not built for the sanitizer, so it does not see what absl::Mutex orders, and
// every guarded access looks like a race. Here our code's absl::Mutex is a std::mutex, which the
// sanitizer knows. Waiters are woken at every unlock: slow, and right.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

// Headers that use Abseil's own mutex inside must see it, not ours.
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace absl {

class StdCondition {
 public:
  template <typename Function>
  explicit StdCondition(const Function* function) : holds_([function] { return (*function)(); }) {}
  explicit StdCondition(const bool* flag) : holds_([flag] { return *flag; }) {}
  template <typename Object>
  StdCondition(bool (*function)(Object*), Object* object)
      : holds_([function, object] { return function(object); }) {}

  template <typename Object>
  StdCondition(const Object* object, bool (Object::*method)() const)
      : holds_([object, method] { return (object->*method)(); }) {}

  bool Holds() const { return holds_(); }

 private:
  std::function<bool()> holds_;
};

class ABSL_LOCKABLE StdMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    changed_.notify_all();
    mutex_.unlock();
  }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}
  void Await(const StdCondition& condition) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    changed_.notify_all();
    changed_.wait(lock, [&] { return condition.Holds(); });
    lock.release();
  }
  bool AwaitWithTimeout(const StdCondition& condition, Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    changed_.notify_all();
    const bool held =
        changed_.wait_for(lock, ToChronoNanoseconds(timeout), [&] { return condition.Holds(); });
    lock.release();
    return held;
  }
  bool AwaitWithDeadline(const StdCondition& condition, Time deadline) {
    return AwaitWithTimeout(condition, deadline - Now());
  }
  void LockWhen(const StdCondition& condition) ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    Lock();
    Await(condition);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class ABSL_SCOPED_LOCKABLE StdMutexLock {
 public:
  explicit StdMutexLock(StdMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  StdMutexLock(StdMutex* mutex, const StdCondition& condition) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->LockWhen(condition);
  }
  ~StdMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  StdMutexLock(const StdMutexLock&) = delete;
  StdMutexLock& operator=(const StdMutexLock&) = delete;

 private:
  StdMutex* const mutex_;
};

}  // namespace absl

#define Mutex StdMutex
#define MutexLock StdMutexLock
#define Condition StdCondition
