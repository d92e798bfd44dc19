// Preloaded into the ranks of a job (faults.sh), makes trouble for rank 0 while it waits for the others' connections:
//   TROUBLE=late        stops the process when it is about to accept the first of them
//   TROUBLE=strangers   three other connections come first and send nothing
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string_view>

namespace {

bool trouble_is(std::string_view kind) {
  const char* trouble = std::getenv("TROUBLE");
  return trouble != nullptr && kind == trouble;
}

template <class F>
F* next(F*, const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  static bool stopped = false;
  if (trouble_is("late") && !stopped) {
    stopped = true;
    ::raise(SIGSTOP);
  }
  return next(&accept4, "accept4")(socket, address, size, flags);
}

extern "C" int listen(int socket, int backlog) noexcept {
  const int result = next(&listen, "listen")(socket, backlog);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  if (result != 0 || !trouble_is("strangers") || ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      own.sin_family != AF_INET)
    return result;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 3; ++i) {
    const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(stranger, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) std::abort();
  }
  return result;
}
