// Files and folders are written whole on disks without hard links, renaming without replacing, or flushing.
#include "framework/core/files/disk.h"

#include <gtest/gtest.h>

#include "framework/core/files/append_file.h"
#include "framework/core/files/files.h"
#include "tests/support/poor_disk.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

using testing::names_in;
using testing::PoorDisk;
using testing::TemporaryDirectory;
using testing::user_error_of;

using Names = std::set<std::string>;

TEST(Disk, FilesAndFoldersNeedNoFlushing) {
  const PoorDisk poor;
  const TemporaryDirectory place;
  write_file_atomically(place / "file", "old");
  write_file_atomically(place / "file", "new");
  EXPECT_EQ(read_file(place / "file"), "new");
  AppendFile lines(place / "lines");
  lines.append("line\n");
  lines.flush();
  AtomicDirectory folder(place / "folder");
  write_file_atomically(folder.path() + "/file", "x");
  folder.commit();
  EXPECT_EQ(names_in(place.path()), (Names{"file", "lines", "folder"}));
}

TEST(Disk, ANewFileReplacesNoneWithoutLinks) {
  const PoorDisk poor;
  const TemporaryDirectory place;
  for (const char* content : {"first", "second"}) {
    AtomicFile file(place / "file");
    file.write(content, 5);
    const std::string message = user_error_of([&] { file.commit(false); });
    EXPECT_EQ(message.empty(), content == std::string("first")) << message;
  }
  EXPECT_EQ(read_file(place / "file"), "first");
  EXPECT_EQ(names_in(place.path()), Names{"file"});
}

TEST(Disk, WhatItLacksIsFoundAndNothingIsLeft) {
  const TemporaryDirectory place;
  EXPECT_EQ(limits_of_disk(place.path()).folders, "");
  const PoorDisk poor;
  const DiskLimits limits = limits_of_disk(place.path());
  EXPECT_EQ(limits.lacks, (std::vector<std::string>{"hard links", "renaming without replacing", "flushing of files",
                                                    "flushing of folders"}));
  EXPECT_EQ(limits.folders, "");
  EXPECT_EQ(names_in(place.path()), Names{});
}

}  // namespace
}  // namespace longstride
