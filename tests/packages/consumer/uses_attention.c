/* The installed header and library belong together. */
#include <longstride/attention.h>
#include <stdio.h>

int main(void) {
  const char* version = longstride_version();
  return puts(version) < 0 || version[0] == '\0';
}
