# What a run records about itself.
longstride_tests(records USES launch LINK ${json} COMMAND longstride)
