# Run by cpack before it packs. The umask decided who may enter the folders, unlike the files; a package of folders that
# only their owner may enter closes those that it is unpacked into.
file(CHMOD_RECURSE "${CPACK_TEMPORARY_DIRECTORY}" DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
