# What commands print for scripts: --json and --quiet.
longstride_tests(console USES launch LINK ${json} TOGETHER Console COMMAND longstride)
