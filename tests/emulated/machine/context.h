// Where an emulated thread, or who runs the threads, continues: a stack, and a place in it.
#pragma once
#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace longstride::emulated {

class Context {
 public:
  Context() = default;                // context of the loop that runs the threads
  explicit Context(void (*begin)());  // context of a thread, which must not return
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Continues here and leaves `before`, the running one, until somebody continues there.
  void continue_after(Context& before);

 private:
  static void enter();
  void arrive();

  std::unique_ptr<char[]> stack_;
  void (*begin_)() = nullptr;
#if defined(__x86_64__)
  void* top_ = nullptr;  // top of the stack, where it is left
#else
  ucontext_t place_ = {};
#endif
  // For AddressSanitizer.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace longstride::emulated
