#include "tests/emulated/machine/context.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves what a function must preserve, and the stack's top at *leaves, and continues on the other stack. swapcontext
// would also keep the mask of signals, by a system call each time: with it, attention's tests took half as long again.
extern "C" void longstride_emulated_switch(void** leaves, void* continues);
asm(R"(
.text
.type longstride_emulated_switch, @function
longstride_emulated_switch:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size longstride_emulated_switch, .-longstride_emulated_switch
)");
#endif

namespace longstride::emulated {
namespace {

constexpr std::size_t stack_bytes = 128 * 1024;

Context *left = nullptr, *entered = nullptr;  // by the last change of contexts

}  // namespace

Context::Context(void (*begin)())
    : stack_(new char[stack_bytes]), begin_(begin), bottom_(stack_.get()), bytes_(stack_bytes) {
#if defined(__x86_64__)
  // As if enter() had been called from address 0, and then switched: a function begins 8 bytes off a multiple of 16.
  auto* const end =
      reinterpret_cast<std::uintptr_t*>(reinterpret_cast<std::uintptr_t>(stack_.get() + stack_bytes) / 16 * 16);
  end[-1] = 0;
  end[-2] = reinterpret_cast<std::uintptr_t>(&Context::enter);
  constexpr int saved_registers = 6;
  for (int i = 0; i < saved_registers; ++i) end[-3 - i] = 0;
  top_ = end - 2 - saved_registers;
#else
  getcontext(&place_);
  place_.uc_stack.ss_sp = stack_.get();
  place_.uc_stack.ss_size = stack_bytes;
  makecontext(&place_, &Context::enter, 0);
#endif
}

void Context::continue_after(Context& before) {
  left = &before;
  entered = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&before.fake_stack_, bottom_, bytes_);
#endif
#if defined(__x86_64__)
  longstride_emulated_switch(&before.top_, top_);
#else
  swapcontext(&before.place_, &place_);
#endif
  before.arrive();
}

void Context::enter() {
  entered->arrive();
  entered->begin_();
}

void Context::arrive() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &left->bottom_, &left->bytes_);
#endif
}

}  // namespace longstride::emulated
