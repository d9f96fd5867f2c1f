//go:build race

package shard

// raceEnabled says that the race detector, which multiplies memory, is on.
const raceEnabled = true
