package shard

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/specstream/specstream"
)

// indexMagic begins the index of a shard.
const indexMagic = "specidx1"

// rowGroup is the unit of reading and of checking.
type rowGroup struct {
	rows, tokens int64
	off, bytes   int64 // of its pages in the file
	digest       specstream.Digest
}

// shardIndex places and vouches for a shard's row groups. Stored it is
//
//	the 8 bytes "specidx1"
//	the SHA-256 of the bytes behind the last row group
//	for each row group of the manifest: its tokens, the bytes of its pages in
//	  the file, and their SHA-256
//	for each row of the shard: its tokens
//
// with digests in 32 bytes and numbers as unsigned varints. Row groups follow
// one another without a gap from offset 4, behind Parquet's magic number.
type shardIndex struct {
	footer  specstream.Digest
	groups  []rowGroup
	lengths []int32 // of the rows
}

// footerOffset returns where the bytes behind the last row group begin.
func (x *shardIndex) footerOffset() int64 {
	last := x.groups[len(x.groups)-1]
	return last.off + last.bytes
}

func (x *shardIndex) encode() []byte {
	b := append([]byte(indexMagic), digestBytes(x.footer)...)
	for _, g := range x.groups {
		b = binary.AppendUvarint(b, uint64(g.tokens))
		b = binary.AppendUvarint(b, uint64(g.bytes))
		b = append(b, digestBytes(g.digest)...)
	}
	for _, n := range x.lengths {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// decodeIndex reads the index of a shard and checks it against the manifest.
func decodeIndex(s Shard, b []byte) (*shardIndex, error) {
	d := varints{b: b}
	if err := d.magic(indexMagic); err != nil {
		return nil, err
	}
	if s.Rows > int64(len(b)) { // a length takes a byte at least
		return nil, fmt.Errorf("%d bytes can't be the lengths of %d rows", len(b), s.Rows)
	}
	x := &shardIndex{footer: d.digest(), lengths: make([]int32, 0, s.Rows)}
	off, tokens := int64(len(parquetMagic)), int64(0)
	for _, rows := range s.Groups {
		g := rowGroup{rows: rows, off: off}
		g.tokens, g.bytes, g.digest = int64(d.next(maxGroupTokens)), int64(d.next(uint64(s.Bytes))), d.digest()
		off, tokens = off+g.bytes, tokens+g.tokens
		x.groups = append(x.groups, g)
	}
	for i, g := range x.groups {
		left := g.tokens
		for range g.rows {
			n := d.next(maxGroupTokens)
			x.lengths = append(x.lengths, int32(n))
			left -= int64(n)
		}
		if d.err == nil && left != 0 {
			return nil, fmt.Errorf("the lengths of row group %d are not its %d tokens", i, g.tokens)
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	if off >= s.Bytes {
		return nil, fmt.Errorf("row groups up to %d leave no footer in the shard's %d bytes", off, s.Bytes)
	}
	if tokens != s.Tokens {
		return nil, fmt.Errorf("it has %d tokens, the manifest says %d", tokens, s.Tokens)
	}
	return x, nil
}

// readIndex reads and checks the index of a shard.
func readIndex(ctx context.Context, blobs Blobs, s Shard) (*shardIndex, error) {
	b, err := readBlob(ctx, blobs, s.Index)
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", s.Index.Digest, err)
	}
	x, err := decodeIndex(s, b)
	if err != nil {
		return nil, fmt.Errorf("index %s: %w: %w", s.Index.Digest, ErrCorrupt, err)
	}
	return x, nil
}

// digestBytes returns the 32 bytes of a valid digest.
func digestBytes(d specstream.Digest) []byte {
	b, err := hex.DecodeString(d.Hex())
	if err != nil || len(b) != 32 {
		panic(fmt.Sprintf("shard: %q is not a digest", string(d)))
	}
	return b
}

func rawDigest(b []byte) specstream.Digest {
	return specstream.Digest("sha256:" + hex.EncodeToString(b[:32]))
}
