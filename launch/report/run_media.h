// The pictures, sounds and texts of a run that its page shows: samples, and what heads attend to. Only files of the
// run, of the types that are written there, and together at most so many bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace longstride {

class RunMedia {
 public:
  explicit RunMedia(std::string run) : run_(std::move(run)) {}
  std::string samples();    // RUN/samples, and at most six steps of train.sample_every
  std::string attention();  // RUN/attention: at most eight layers' sheets, spread over the depth

 private:
  std::vector<std::string> files_in(const std::string& folder, const std::string& ending) const;
  std::string shown(const std::string& name, const std::string& element);
  std::string pictures(const std::string& folder);
  std::string samples_of(const std::string& folder, std::size_t most);
  std::string samples_while_training();

  std::string run_;
  std::uint64_t shown_ = 0;  // bytes of files so far
};

}  // namespace longstride
