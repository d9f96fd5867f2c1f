package shard

import "syscall"

// mapAhead maps all pages at once, since all are read at once: a fault for each
// would cost more than the reading.
const mapAhead = syscall.MAP_POPULATE
