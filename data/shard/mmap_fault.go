//go:build unix && !linux

package shard

const mapAhead = 0
