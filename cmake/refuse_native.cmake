# Run by cpack in a build for this machine's processor.
message(FATAL_ERROR "this build is tuned for the processor of this machine (LONGSTRIDE_NATIVE), but a package must run "
  "on others: configure with `cmake --preset package`")
